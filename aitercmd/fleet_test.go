package aitercmd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/aiter-go/aiter/internal/testenv"
)

// TestFleetScript runs scripts with a real registry at $REGISTRY, with the keys ci.pem, ci.pub and other.pub, and with the program $CRANE.
func TestFleetScript(t *testing.T) {
	program, crane := testenv.Tool(t, "registry"), testenv.Tool(t, "crane")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/fleet",
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"AITER_JIT_REMOTE", "AITER_JIT_KEYS", "AITER_JIT_REMOTE_WAIT", "AITER_JIT_REMOTE_CERTS"} {
				env.Setenv(name, "")
			}
			dir := filepath.Join(env.WorkDir, "registry")
			if err := errors.Join(setup(env), os.Mkdir(dir, 0o755), writeKeys(env.WorkDir, "ci"), writeKeys(env.WorkDir, "other")); err != nil {
				return err
			}
			r, err := testenv.StartRegistry(program, dir, "", "")
			if err != nil {
				return err
			}
			env.Defer(r.Stop)
			env.Setenv("REGISTRY", r.Host)
			env.Setenv("CRANE", crane)
			return nil
		},
		Cmds:               map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "replace": replace},
		Condition:          condition,
		RequireUniqueNames: true,
	})
}

// writeKeys writes a key pair to NAME.pem and NAME.pub.
func writeKeys(dir, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, errA := x509.MarshalPKCS8PrivateKey(key)
	public, errB := x509.MarshalPKIXPublicKey(&key.PublicKey)
	return errors.Join(errA, errB,
		os.WriteFile(filepath.Join(dir, name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
		os.WriteFile(filepath.Join(dir, name+".pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644))
}
