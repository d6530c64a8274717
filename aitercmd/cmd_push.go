package aitercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/fleet"
	"github.com/aiter-go/aiter/internal/cache"
	"github.com/aiter-go/aiter/internal/spelling"
	"github.com/aiter-go/aiter/jit"
)

const pushLong = `Build modules for targets and push them to a registry for container images, as a set that
nodes pull with AITER_JIT_REMOTE. The set has what build --output writes. With --from the command
pushes a folder that build --output or cache export wrote, and builds nothing.

Equal folders give a set with the same digest, and a push uploads only what the registry does
not have. The command reads the set back and compares its digests.

--sign signs the set with a private key on P-256 in PEM, as cosign sign --key does; the
public half belongs in AITER_JIT_KEYS of the nodes. Without it, sign the digest with cosign,
or have nodes name the digest.

The credentials are those of docker login. A REF without a scheme or with oci:// uses TLS, except
for a registry on this machine. A REF with oci+http:// does not use TLS. With file:///DIR the
command writes an OCI image layout to DIR. Upload it to a web server or a bucket; nodes name it
as https://HOST/DIR.`

// pushFlags are the flags of push.
type pushFlags struct {
	buildCommandFlags
	from, sign string
}

func newPush(a *app) *cobra.Command {
	f := new(pushFlags)
	cmd := &cobra.Command{
		Use:   "push REF [MODULE|OPERATOR...]",
		Short: "Build modules and push them to a registry",
		Long:  pushLong,
		Example: "  aiterctl push registry.example/aiter/kernels:v1 --all --arch gfx942,gfx950 --sign ci.pem\n" +
			"  aiterctl push registry.example/aiter/kernels:v1 --from /opt/aiter",
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args[1:]); err != nil {
				return err
			}
			return a.push(cmd.Context(), f, args[0], args[1:])
		},
	}
	f.buildFlags.add(a, cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.force, "force", false, "compile everything again")
	fl.StringVar(&f.from, "from", "", "push the prebuilt cache in `DIR`, build nothing")
	fl.StringVar(&f.sign, "sign", "", "sign with the private key in `FILE`")
	return cmd
}

// check refuses flags that contradict each other.
func (f *pushFlags) check(cmd *cobra.Command, names []string) error {
	if !cmd.Flags().Changed("from") {
		return f.buildFlags.check(cmd, "push", names)
	}
	if f.from == "" || f.all || len(names) > 0 || f.arch != "" {
		return usagef("--from needs a folder, and pushes all of it: leave out modules, --all and --arch")
	}
	return nil
}

// push runs the command push.
func (a *app) push(ctx context.Context, f *pushFlags, reference string, names []string) error {
	ref, err := fleet.ParseReference(reference)
	if err != nil {
		return err
	}
	var signer *fleet.Signer
	if f.sign != "" {
		if signer, err = fleet.LoadSigner(f.sign); err != nil {
			return err
		}
	}
	o, err := a.fleetOptions("")
	if err != nil {
		return err
	}
	dir, remove, err := a.built(ctx, f, names)
	if err != nil {
		return err
	}
	defer remove()
	trust, err := a.cacheOptions()
	if err != nil {
		return err
	}
	from, err := cache.OpenReadOnly(dir, cache.Options{TrustForeign: trust.Trust})
	if err != nil {
		return err
	}
	rep, err := fleet.Push(ctx, ref, from, signer, o)
	if err != nil {
		return err
	}
	return a.printPush(rep)
}

// built returns the folder to push: that of --from, or a temporary folder with a new build, which remove deletes.
func (a *app) built(ctx context.Context, f *pushFlags, names []string) (dir string, remove func(), err error) {
	if f.from != "" {
		return f.from, func() {}, nil
	}
	tmp, err := os.MkdirTemp("", "aiter-push-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(tmp) }
	f.output = filepath.Join(tmp, "set")
	silent := *a // only the push prints a report
	silent.out = io.Discard
	if err := silent.build(ctx, &f.buildCommandFlags, names); err != nil {
		remove()
		return "", nil, err
	}
	return f.output, remove, nil
}

// fleetOptions returns the settings of pushes and pulls. keys replaces AITER_JIT_KEYS unless it is "".
func (a *app) fleetOptions(keys string) (fleet.Options, error) {
	o, err := fleet.FromEnvironment(a.getenv)
	if keys != "" {
		o.Keys = keys
	}
	o.Progress = func(line string) { a.log.Debug(line) }
	return o, err
}

func (a *app) printPush(rep fleet.PushReport) error {
	if a.json {
		return a.writeJSON(rep)
	}
	uploaded := "the registry has all of it"
	if rep.Uploaded > 0 {
		uploaded = fmt.Sprintf("uploaded %s in %s", formatSize(rep.Bytes), spelling.Count(rep.Uploaded, "blob"))
	}
	signed := "not signed: nodes need the digest in AITER_JIT_REMOTE"
	if rep.Key != "" {
		signed = "signed by the key " + cache.Key(rep.Key).Short()
	}
	_, err := fmt.Fprintf(a.out, "pushed %s\n%s\n%s\n%s\n", rep.Reference, rep.Digest, uploaded, signed)
	return err
}

// checkRemote checks AITER_JIT_REMOTE and its keys, without a connection.
func (a *app) checkRemote(context.Context) []check {
	remote := a.getenv("AITER_JIT_REMOTE")
	if remote == "" {
		return nil
	}
	c := check{Name: "remote set", Status: statusOK, Detail: remote + "; aiterctl inspect-remote shows it", required: true}
	if _, err := fleet.Open(jit.SourceOptions{Getenv: a.getenv, Logger: a.log}); err != nil {
		c.fail(err)
	}
	return []check{c}
}

// hintSet returns advice for errors of sets.
func hintSet(err error) string {
	var refused *fleet.UntrustedError
	var key *fleet.KeyError
	var late *fleet.TimeoutError
	switch {
	case errors.As(err, &refused):
		return "aiterctl inspect-remote REF shows the set and its signatures"
	case errors.As(err, &key):
		return "--keys or AITER_JIT_KEYS names a file or a folder of public keys in PEM"
	case errors.As(err, &late):
		return "run it again, or give it more time: --timeout"
	}
	return ""
}
