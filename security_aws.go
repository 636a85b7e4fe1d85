package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
)

const (
	iamPackage     = "software.amazon.msk.auth.iam."
	awsEarly       = 5 * time.Minute // before their end, credentials are asked for anew
	containerHost  = "http://169.254.170.2"
	awsSession     = "ankka-flow-sidecar"
	maxCredentials = 1 << 20 // bytes of an answer with credentials
)

// awsCredentials gives the credentials of AWS_MSK_IAM by the environment's variables, as AWS's SDKs do: keys, a web identity
// (IRSA), or a container's (EKS pod identity, ECS), in this order. The SDK itself would add 4 MB to the binary.
type awsCredentials struct {
	outside outside

	mu   sync.Mutex
	auth aws.Auth
	ends time.Time // zero when there are none yet
}

func (d *portProperties) awsMechanism() func(network) sasl.Mechanism {
	before := len(d.problems)
	if jaas := d.security.jaas; jaas != nil {
		at := d.given["sasl.jaas.config"]
		if strings.TrimSpace(jaas.module) != iamPackage+"IAMLoginModule" {
			d.problem(at, "its login module must be %sIAMLoginModule for sasl.mechanism AWS_MSK_IAM", iamPackage)
		}
		for _, option := range []string{"awsProfileName", "awsRoleArn", "awsRoleAccessKeyId"} {
			if _, ok := jaas.options[option]; ok {
				d.problem(at, "its option %s is not supported; credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, or AWS_CONTAINER_CREDENTIALS_FULL_URI", option)
			}
		}
	}
	d.onlyClasses("sasl.client.callback.handler.class", iamPackage+"IAMClientCallbackHandler")
	c := &awsCredentials{outside: d.outside}
	if c.source() == nil {
		d.problem(d.either("sasl.mechanism"), "there are no AWS credentials in the environment: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, nor AWS_CONTAINER_CREDENTIALS_FULL_URI; does the pod have a service account with a role?")
	}
	if len(d.problems) > before {
		return nil
	}
	return func(n network) sasl.Mechanism {
		return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) { return c.get(ctx, n) })
	}
}

func (c *awsCredentials) env(name string) string {
	value, _ := c.outside.lookupEnv(name)
	return value
}

// source is where the environment says that credentials are; nil when it does not.
func (c *awsCredentials) source() func(context.Context, network) (aws.Auth, time.Time, error) {
	switch {
	case c.env("AWS_ACCESS_KEY_ID") != "" && c.env("AWS_SECRET_ACCESS_KEY") != "":
		return func(context.Context, network) (aws.Auth, time.Time, error) {
			return aws.Auth{AccessKey: c.env("AWS_ACCESS_KEY_ID"), SecretKey: c.env("AWS_SECRET_ACCESS_KEY"), SessionToken: c.env("AWS_SESSION_TOKEN")}, time.Time{}, nil
		}
	case c.env("AWS_WEB_IDENTITY_TOKEN_FILE") != "" && c.env("AWS_ROLE_ARN") != "":
		return c.webIdentity
	case c.env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "" || c.env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		return c.container
	}
	return nil
}

func (c *awsCredentials) get(ctx context.Context, n network) (aws.Auth, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ends.IsZero() && time.Until(c.ends) > awsEarly {
		return c.auth, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*tokenTimeout)
	defer cancel()
	auth, ends, err := c.source()(ctx, n)
	if err != nil {
		return aws.Auth{}, fmt.Errorf("no AWS credentials could be had: %w", err)
	}
	auth.UserAgent = awsSession + "/" + sidecarVersion()
	c.auth, c.ends = auth, ends
	return auth, nil
}

// webIdentity exchanges the pod's token for a role's credentials (STS, AssumeRoleWithWebIdentity).
func (c *awsCredentials) webIdentity(ctx context.Context, n network) (aws.Auth, time.Time, error) {
	token, err := c.outside.readFile(c.env("AWS_WEB_IDENTITY_TOKEN_FILE"))
	if err != nil {
		return aws.Auth{}, time.Time{}, err
	}
	session := c.env("AWS_ROLE_SESSION_NAME")
	if session == "" {
		session = awsSession
	}
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {c.env("AWS_ROLE_ARN")}, "RoleSessionName": {session},
		"WebIdentityToken": {strings.TrimSpace(string(token))},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.stsEndpoint(), strings.NewReader(form.Encode()))
	if err != nil {
		return aws.Auth{}, time.Time{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	body, err := askForCredentials(n, req)
	if err != nil {
		return aws.Auth{}, time.Time{}, err
	}
	var answer struct {
		Credentials struct {
			AccessKeyID     string    `xml:"AccessKeyId"`
			SecretAccessKey string    `xml:"SecretAccessKey"`
			SessionToken    string    `xml:"SessionToken"`
			Expiration      time.Time `xml:"Expiration"`
		} `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
	}
	if xml.Unmarshal(body, &answer) != nil || answer.Credentials.AccessKeyID == "" {
		return aws.Auth{}, time.Time{}, errors.New("STS answered without credentials")
	}
	given := answer.Credentials
	return aws.Auth{AccessKey: given.AccessKeyID, SecretKey: given.SecretAccessKey, SessionToken: given.SessionToken}, given.Expiration, nil
}

func (c *awsCredentials) stsEndpoint() string {
	if endpoint := c.env("AWS_ENDPOINT_URL_STS"); endpoint != "" {
		return endpoint
	}
	region := c.env("AWS_REGION")
	if region == "" {
		region = c.env("AWS_DEFAULT_REGION")
	}
	switch {
	case region == "":
		return "https://sts.amazonaws.com/"
	case strings.HasPrefix(region, "cn-"):
		return "https://sts." + region + ".amazonaws.com.cn/"
	}
	return "https://sts." + region + ".amazonaws.com/"
}

// container asks the agent beside the pod or task.
func (c *awsCredentials) container(ctx context.Context, n network) (aws.Auth, time.Time, error) {
	address := c.env("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if relative := c.env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); relative != "" {
		address = containerHost + relative
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return aws.Auth{}, time.Time{}, err
	}
	token := c.env("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	if file := c.env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
		content, err := c.outside.readFile(file) // it changes on disk
		if err != nil {
			return aws.Auth{}, time.Time{}, err
		}
		token = strings.TrimSpace(string(content))
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	body, err := askForCredentials(n, req)
	if err != nil {
		return aws.Auth{}, time.Time{}, err
	}
	var answer struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		Token           string
		Expiration      time.Time
	}
	if json.Unmarshal(body, &answer) != nil || answer.AccessKeyID == "" {
		return aws.Auth{}, time.Time{}, errors.New("the container's agent answered without credentials")
	}
	return aws.Auth{AccessKey: answer.AccessKeyID, SecretKey: answer.SecretAccessKey, SessionToken: answer.Token}, answer.Expiration, nil
}

// askForCredentials returns the body of an answer. No error holds it.
func askForCredentials(n network, req *http.Request) ([]byte, error) {
	resp, err := httpClient(n, &tlsClient{versions: [2]uint16{tls.VersionTLS12, tls.VersionTLS13}}, tokenTimeout).Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", quote(req.URL.Host), errors.Unwrap(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxCredentials))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s", quote(req.URL.Host), resp.Status)
	}
	return body, err
}
