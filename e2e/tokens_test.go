//go:build e2e

package e2e

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"
)

const (
	clientID     = "the-sidecar"
	clientSecret = "cl1ent+s3cret/=&%"
)

// tokens is a token endpoint, and the file of its public keys for the broker, which checks each token's signature, audience and end.
type tokens struct {
	url, keys string
	key       *rsa.PrivateKey
}

// newTokens serves until the suites end. A token that holds for an hour is in the file 'token'.
func newTokens(dir string) (*tokens, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	k := &tokens{key: key, keys: "file://" + filepath.Join(dir, "keys.json")}
	encode := base64.RawURLEncoding.EncodeToString
	keys := fmt.Sprintf(`{"keys":[{"kty":"RSA","use":"sig","alg":"RS256","kid":"1","n":"%s","e":"%s"}]}`, encode(key.N.Bytes()), encode(big.NewInt(int64(key.E)).Bytes()))
	if err := os.WriteFile(filepath.Join(dir, "keys.json"), []byte(keys), 0o644); err != nil {
		return nil, err
	}
	token, err := k.token("kafka", time.Hour)
	if err != nil {
		return nil, err
	}
	k.url = httptest.NewServer(http.HandlerFunc(k.serve)).URL + "/token"
	return k, os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o644)
}

func (k *tokens) serve(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	token, err := k.token("kafka", time.Minute)
	if r.FormValue("grant_type") != "client_credentials" || id != clientID || secret != clientSecret || err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":"invalid_client"}`))
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 60})
}

// token is a signed JWT.
func (k *tokens) token(audience string, life time.Duration) (string, error) {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{"sub": "alice", "scope": "kafka", "aud": audience, "iss": "the suites", "iat": now.Unix(), "exp": now.Add(life).Unix()})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"RS256","typ":"JWT","kid":"1"}`)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.key, crypto.SHA256, sum[:])
	return signed + "." + encode(signature), err
}
