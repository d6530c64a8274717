package toolchain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aiter-go/aiter/internal/filehash"
	"github.com/aiter-go/aiter/jit/target"
)

// format names the form of records in the Memo and the rules by which a Digest is computed.
const format = "aiter toolchain 2"

// search is one identification of one compiler.
type search struct {
	ctx      context.Context
	target   target.Target
	session  *Session
	memo     *filehash.Memo
	timeout  time.Duration
	override string // the root folder that the user has set
	tc       *Toolchain
	began    time.Time             // later changes may be in one answer and not in another
	early    func() (reply, error) // the answer about the target, requested together with the common answers
	folder   func() string         // creates the folder for temporary files; "" if that fails
}

// record holds the answers of a compiler: everything except the digest of the driver itself.
type record struct {
	Version     string   `json:",omitempty"`
	VersionLine string   `json:",omitempty"`
	Root        string   `json:",omitempty"`
	IncludeDirs []string `json:",omitempty"`
	LibraryDirs []string `json:",omitempty"`
	Commands    string   // digest of the commands that the driver would run
	Parts       []File   // with the digests at that time
	Outside     []File   // parts that are not below the root, by their paths on this machine
	Watch       []stamp  // folders in which a new file could change the answer
	Facts       []fact   // about names that were looked up
	Unknown     string   `json:",omitempty"` // see Toolchain.Unknown

	scripted bool // a program among the parts is a script
	young    bool // a part has changed since shortly before the search began
}

// commonQuestion has a number that must change with the questions.
const commonQuestion = "common 5"

// settled is the age from which a folder's modification time is certain to change with its contents.
const settled = 2 * time.Second

// identify fills in the toolchain: the files that its compiler uses for all targets, then those for this one.
func (s *search) identify() error {
	s.began = time.Now()
	var remove func()
	s.folder, remove = s.tempFolder()
	defer remove()
	defer s.askEarly()()
	common, err := s.common()
	if err != nil {
		return err
	}
	s.tc.Version, s.tc.VersionLine = common.Version, common.VersionLine
	s.tc.Root, s.tc.IncludeDirs, s.tc.LibraryDirs = common.Root, common.IncludeDirs, common.LibraryDirs
	s.tc.Folders = sum(strings.Join(common.IncludeDirs, "\x00") + "\x00\x00" + strings.Join(common.LibraryDirs, "\x00"))
	s.tc.folders = s.session.below(common.Root)
	special := &record{}
	if s.tc.Vendor != target.CPU {
		if special, err = s.answer(s.special(), s.askTarget); err != nil {
			return err
		}
	}
	driver, err := s.driver()
	if err != nil {
		return err
	}
	host := mergeParts(driver, common.parts("commands"))
	s.tc.HostDigest = digestOf(s.tc, host)
	s.tc.Files = mergeParts(host, special.parts("commands for the device"))
	s.tc.Unknown = cmp.Or(common.Unknown, special.Unknown)
	s.tc.Digest = digestOf(s.tc, s.tc.Files)
	return nil
}

// parts returns all parts. The digest of the commands is a part with the name commands.
func (r *record) parts(commands string) []File {
	if r.Commands == "" {
		return nil
	}
	return append(slices.Concat(r.Parts, r.Outside), File{Name: commands, Digest: r.Commands})
}

// driver returns the program that is executed. In a wrapper that starts a container it replaces the root's path by a name,
// because the path does not affect the contents of the root.
func (s *search) driver() ([]File, error) {
	path := s.tc.Compiler
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	part := File{Name: filepath.Base(path), Path: s.tc.Compiler}
	if s.tc.Root == "" {
		var err error
		part.Digest, err = s.session.digest(path)
		return []File{part}, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the wrapper: %w", err)
	}
	part.Name = "wrapper"
	part.Digest = sum(strings.ReplaceAll(string(text), s.tc.Root, "$ROOT"))
	return []File{part}, nil
}

// special returns the name of the question about the target.
func (s *search) special() string { return "target " + s.target.String() }

// askEarly starts the question about the target in parallel with the common ones, if no answer is remembered. The caller
// calls end.
func (s *search) askEarly() (end func()) {
	s.early = sync.OnceValues(func() (reply, error) { return s.run(targetQuestion(s.target)) })
	question, err := s.question(s.special())
	if _, known := s.memo.Get(question); known || err != nil || s.tc.Vendor == target.CPU {
		return func() {}
	}
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(s.ctx)
	var asking sync.WaitGroup
	asking.Go(func() { _, _ = s.early() })
	return func() {
		cancel()
		asking.Wait()
	}
}

// answer returns the memoized answer to a question if all its files are unchanged, and otherwise runs the compiler.
func (s *search) answer(what string, ask func() (*record, error)) (*record, error) {
	question, err := s.question(what)
	if err != nil {
		return nil, err
	}
	return s.answerTo(question, ask)
}

// common returns the answer for all targets.
func (s *search) common() (*record, error) {
	question, err := s.question(commonQuestion)
	if err != nil {
		return nil, err
	}
	for {
		r, err := s.session.once(question, func() (*record, error) { return s.answerTo(question, s.askCommon) })
		cancelled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if !cancelled || s.ctx.Err() != nil {
			return r, err
		}
		// The other search was cancelled. This one runs the compiler again.
	}
}

func (s *search) answerTo(question string, ask func() (*record, error)) (*record, error) {
	if known, ok := s.recall(question); ok {
		return known, nil
	}
	fresh, err := ask()
	if err != nil {
		return nil, err
	}
	if text, err := json.Marshal(fresh); err == nil && fresh.lasting(s.began) {
		s.memo.Put(question, string(text))
	}
	return fresh, nil
}

// lasting reports whether the answer can be used again. An answer of an untraced script cannot: the files that it read are
// unknown, and only another answer would show that they changed.
func (r *record) lasting(began time.Time) bool {
	return r.settled(began) && !r.young && (r.Unknown == "" || !r.scripted)
}

// question returns the Memo's key for a question: its name, the content of the compiler, and the environment.
func (s *search) question(what string) (string, error) {
	driver, err := s.session.digest(s.tc.Compiler)
	if err != nil {
		return "", fmt.Errorf("identify the compiler: %w", err)
	}
	real, err := filepath.EvalSymlinks(s.tc.Compiler)
	if err != nil {
		return "", fmt.Errorf("identify the compiler: %w", err)
	}
	lines := []string{format, what, string(s.tc.Vendor), s.tc.Compiler, real, driver, s.override}
	for _, entry := range s.tc.env {
		if !strings.HasPrefix(entry, "TMPDIR=") { // each search has its own
			lines = append(lines, entry)
		}
	}
	return "toolchain " + sum(strings.Join(lines, "\x00")), nil
}

func (s *search) recall(question string) (*record, bool) {
	text, ok := s.memo.Get(question)
	if !ok {
		return nil, false
	}
	known := &record{}
	if json.Unmarshal([]byte(text), known) != nil {
		return nil, false
	}
	root := known.Root
	if root == "" {
		root = s.tc.Root
	}
	inside := &Toolchain{Root: root, folders: s.session.below(root)}
	same := func(path string, p File) bool {
		digest, err := s.session.digest(path)
		return err == nil && digest == p.Digest
	}
	for _, p := range known.Parts {
		if !same(inside.Resolve(p.Path), p) {
			return nil, false
		}
	}
	for _, p := range known.Outside {
		if !same(p.Path, p) {
			return nil, false
		}
	}
	return known, known.holds()
}

// holds reports whether the folders and names are unchanged.
func (r *record) holds() bool {
	for _, w := range r.Watch {
		if w != stampOf(w.Path) {
			return false
		}
	}
	for _, f := range r.Facts {
		if !f.holds() {
			return false
		}
	}
	return true
}

// mergeParts sorts by name and drops repetitions; one file may be reached by several names.
func mergeParts(lists ...[]File) []File {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b File) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Digest, b.Digest), strings.Compare(a.Path, b.Path))
	})
	return slices.CompactFunc(all, func(a, b File) bool { return a.Name == b.Name && a.Digest == b.Digest })
}

// digestOf omits paths, so that a compiler has the same digest in another folder.
func digestOf(tc *Toolchain, parts []File) string {
	lines := []string{format, string(tc.Vendor), tc.Version}
	for _, p := range parts {
		lines = append(lines, p.Name+" "+p.Digest)
	}
	return sum(strings.Join(lines, "\n"))
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}
