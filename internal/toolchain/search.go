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

// format is the version of the records in the Memo and of the rules by which a Digest is computed.
const format = "aiter toolchain 2"

// search identifies one compiler for one target.
type search struct {
	ctx         context.Context
	target      target.Target
	session     *Session
	memo        *filehash.Memo
	timeout     time.Duration
	override    string // the root folder that the user has set
	tc          *Toolchain
	began       time.Time              // a later change may be in one answer and not in another
	targetReply func() (reply, error)  // the reply about the target, queried in parallel with the common queries
	folder      func() (string, error) // creates the folder for temporary files; "" if that fails
}

// record holds the answers of a compiler: everything except the digest of the driver itself.
type record struct {
	Version     string   `json:",omitempty"`
	VersionLine string   `json:",omitempty"`
	Root        string   `json:",omitempty"`
	IncludeDirs []string `json:",omitempty"`
	LibraryDirs []string `json:",omitempty"`
	Commands    string   // digest of the commands that the driver would run
	Files       []File   `json:"Parts"` // with the digests at that time
	Outside     []File   // files that are not below the root, by their paths on this machine
	Watch       []stamp  // folders in which a new file could change the answer
	Facts       []fact   // about names that were looked up
	Unknown     string   `json:",omitempty"` // see Toolchain.Unknown

	scripted bool // a program among the files is a script
	recent   bool // a file has changed since shortly before the search began
}

// commonQuery names the queries that do not depend on the target. Its number must change with the queries.
const commonQuery = "common 6"

// settled is the age of a folder's time from which the next change certainly sets another time.
const settled = 2 * time.Second

// identify fills in the toolchain: the files that its compiler uses for all targets, then those for this one.
func (s *search) identify() error {
	s.began = time.Now()
	var remove func()
	s.folder, remove = s.tempFolder()
	defer remove()
	defer s.startTargetQuery()()
	common, err := s.common()
	if err != nil {
		return err
	}
	s.tc.Version, s.tc.VersionLine = common.Version, common.VersionLine
	s.tc.Root, s.tc.IncludeDirs, s.tc.LibraryDirs = common.Root, common.IncludeDirs, common.LibraryDirs
	s.tc.Folders = sum(strings.Join(common.IncludeDirs, "\x00") + "\x00\x00" + strings.Join(common.LibraryDirs, "\x00"))
	s.tc.folders = s.session.below(common.Root)
	device := &record{}
	if s.tc.Vendor != target.CPU {
		if device, err = s.answer(s.targetQueryName(), s.queryTarget); err != nil {
			return err
		}
	}
	driver, err := s.driver()
	if err != nil {
		return err
	}
	host := mergeFiles(driver, common.allFiles("commands"))
	s.tc.HostFiles, s.tc.HostDigest = host, digestOf(s.tc, host)
	s.tc.Files = mergeFiles(host, device.allFiles("commands for the device"))
	s.tc.Unknown = cmp.Or(common.Unknown, device.Unknown)
	s.tc.Digest = digestOf(s.tc, s.tc.Files)
	return nil
}

// allFiles returns all files. The digest of the commands counts as a file with the name commands.
func (r *record) allFiles(commands string) []File {
	if r.Commands == "" {
		return nil
	}
	return append(slices.Concat(r.Files, r.Outside), File{Name: commands, Digest: r.Commands})
}

// driver returns the program that is executed, as a file of the toolchain. In a wrapper that starts a container it replaces
// the root's path by a name, because the path does not affect the contents of the root.
func (s *search) driver() ([]File, error) {
	path := s.tc.Compiler
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	driver := File{Name: filepath.Base(path), Path: s.tc.Compiler}
	if s.tc.Root == "" {
		var err error
		driver.Digest, err = s.session.digest(path)
		return []File{driver}, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the wrapper: %w", err)
	}
	driver.Name = "wrapper"
	driver.Digest = sum(strings.ReplaceAll(string(text), s.tc.Root, "$ROOT"))
	return []File{driver}, nil
}

// targetQueryName returns the name of the query about the target.
func (s *search) targetQueryName() string { return "target " + s.target.String() }

// startTargetQuery starts the query about the target in parallel with the common ones, if no answer is remembered. The caller
// calls end.
func (s *search) startTargetQuery() (end func()) {
	s.targetReply = sync.OnceValues(s.runTarget)
	key, err := s.memoKey(s.targetQueryName())
	if _, known := s.memo.Get(key); known || err != nil || s.tc.Vendor == target.CPU {
		return func() {}
	}
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(s.ctx)
	var running sync.WaitGroup
	running.Go(func() { _, _ = s.targetReply() })
	return func() {
		cancel()
		running.Wait()
	}
}

// answer returns the remembered record of a query if all its files are unchanged, and otherwise queries the compiler.
func (s *search) answer(what string, run func() (*record, error)) (*record, error) {
	key, err := s.memoKey(what)
	if err != nil {
		return nil, err
	}
	return s.answerTo(key, run)
}

// common returns the record of the queries that do not depend on the target.
func (s *search) common() (*record, error) {
	key, err := s.memoKey(commonQuery)
	if err != nil {
		return nil, err
	}
	for {
		r, err := s.session.once(key, func() (*record, error) { return s.answerTo(key, s.queryCommon) })
		cancelled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if !cancelled || s.ctx.Err() != nil {
			return r, err
		}
		// The other search was cancelled. This one runs the compiler again.
	}
}

func (s *search) answerTo(key string, run func() (*record, error)) (*record, error) {
	if known, ok := s.recall(key); ok {
		return known, nil
	}
	fresh, err := run()
	if err != nil {
		return nil, err
	}
	if text, err := json.Marshal(fresh); err == nil && fresh.lasting(s.began) {
		s.memo.Put(key, string(text))
	}
	return fresh, nil
}

// lasting reports whether the answer can be used again. The answer of an untraced script cannot: the files that the script
// read are unknown, so that only another query shows their changes.
func (r *record) lasting(began time.Time) bool {
	return r.settled(began) && !r.recent && (r.Unknown == "" || !r.scripted)
}

// memoKey returns the Memo's key for a query: a digest of its name, the compiler's content, and the environment.
func (s *search) memoKey(what string) (string, error) {
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

// recall returns the remembered record of a query, false if one of its files changed.
func (s *search) recall(key string) (*record, bool) {
	text, ok := s.memo.Get(key)
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
	for _, p := range known.Files {
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

// holds reports whether the folders and names of the record are unchanged.
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

// mergeFiles returns the files of all lists, sorted by name, each once: a file may be found under several paths.
func mergeFiles(lists ...[]File) []File {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b File) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Digest, b.Digest), strings.Compare(a.Path, b.Path))
	})
	return slices.CompactFunc(all, func(a, b File) bool { return a.Name == b.Name && a.Digest == b.Digest })
}

// digestOf returns the digest of a toolchain. It omits paths, so that a compiler has the same digest in another folder.
func digestOf(tc *Toolchain, files []File) string {
	lines := []string{format, string(tc.Vendor), tc.Version}
	for _, f := range files {
		lines = append(lines, f.Name+" "+f.Digest)
	}
	return sum(strings.Join(lines, "\n"))
}

// sum returns the SHA-256 of a text in hex.
func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}
