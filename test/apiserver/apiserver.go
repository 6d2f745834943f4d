// Package apiserver runs a real kube-apiserver and its etcd for the tests of a package, without nodes and controllers.
package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Admin is the name of the user with all rights, and of the context in its kubeconfig.
const Admin = "admin"

const startTimeout = 5 * time.Minute

// Server is a kube-apiserver.
type Server struct {
	// URL is its address.
	URL string
	// Dir is its temporary directory.
	Dir string

	names atomic.Int32
	ca    *authority
	procs []*process
	// serve starts kube-apiserver.
	serve func() (*process, error)
}

// Start starts a kube-apiserver and waits until it is ready. It ends with Stop, or when the test process ends.
func Start(ctx context.Context) (*Server, error) {
	bin, err := Binaries(ctx, "kube-apiserver", "etcd")
	if err != nil {
		return nil, err
	}
	s, err := startAt(ctx, bin)
	if errors.Is(err, syscall.EADDRINUSE) { // another process has taken a port since it was found free
		s, err = startAt(ctx, bin)
	}
	return s, err
}

// startAt starts a server at free ports.
func startAt(ctx context.Context, bin string) (*Server, error) {
	dir, err := os.MkdirTemp("", "kcpctl-apiserver-")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir}
	if err := s.start(ctx, bin); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, bin string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	if s.ca, err = newAuthority(s.Dir); err != nil {
		return err
	}
	etcd, peer, port := ports[0], ports[1], ports[2]
	s.URL = "https://127.0.0.1:" + port
	client := "http://127.0.0.1:" + etcd
	p, err := launch(filepath.Join(bin, "etcd"), filepath.Join(s.Dir, "etcd.log"),
		"--data-dir", filepath.Join(s.Dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", "http://127.0.0.1:"+peer)
	if err != nil {
		return err
	}
	s.procs = append(s.procs, p)
	args := []string{
		"--etcd-servers", client, "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--tls-cert-file", s.ca.file("server.crt"), "--tls-private-key-file", s.ca.file("server.key"),
		"--client-ca-file", s.ca.file("ca.crt"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file", s.ca.file("server.key"), "--service-account-signing-key-file", s.ca.file("server.key"),
		"--service-cluster-ip-range=10.0.0.0/16", "--disable-admission-plugins=ServiceAccount",
		"--enable-garbage-collector=false", // there is none, so a deletion in the foreground would not end
	}
	s.serve = func() (*process, error) {
		return launch(filepath.Join(bin, "kube-apiserver"), filepath.Join(s.Dir, "kube-apiserver.log"), args...)
	}
	if p, err = s.serve(); err != nil {
		return err
	}
	s.procs = append(s.procs, p)
	return s.wait(ctx)
}

// Kill kills kube-apiserver with kill -9. Its data stays, and Restart starts it again.
func (s *Server) Kill() error {
	p := s.procs[len(s.procs)-1]
	if err := p.kill(); err != nil {
		return err
	}
	s.procs = s.procs[:len(s.procs)-1]
	return nil
}

// Restart starts kube-apiserver at the same address after Kill, and waits until it is ready.
func (s *Server) Restart(ctx context.Context) error {
	p, err := s.serve()
	if err != nil {
		return err
	}
	s.procs = append(s.procs, p)
	return s.wait(ctx)
}

// wait waits until the server is ready.
func (s *Server) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := s.client()
	if err != nil {
		return err
	}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
		if err != nil {
			return err
		}
		ready := false
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			ready = resp.StatusCode == http.StatusOK
		}
		// The processes come first: a server whose own etcd has found its port taken uses the etcd of another test.
		for _, p := range s.procs {
			if err := p.ended(); err != nil {
				return err
			}
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready after %s: %s", startTimeout, s.procs[len(s.procs)-1].lastLine())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *Server) client() (*http.Client, error) {
	cert, key, err := s.ca.issue(Admin, []string{"system:masters"})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.ca.cert)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
	}}, nil
}

// Kubeconfig writes a kubeconfig for a user and returns its path. Its only context has the name of the user. A user
// without groups has no rights until a test grants some.
func (s *Server) Kubeconfig(user string, groups ...string) (string, error) {
	if user == Admin {
		groups = append(groups, "system:masters")
	}
	cert, key, err := s.ca.issue(user, groups)
	if err != nil {
		return "", err
	}
	ca, err := os.ReadFile(s.ca.file("ca.crt"))
	if err != nil {
		return "", err
	}
	c := clientcmdapi.NewConfig()
	c.Clusters[user] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: ca}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	c.Contexts[user] = &clientcmdapi.Context{Cluster: user, AuthInfo: user}
	c.CurrentContext = user
	raw, err := clientcmd.Write(*c)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(s.Dir, user+"-*.kubeconfig") // concurrent tests each have their own
	if err != nil {
		return "", err
	}
	_, err = f.Write(raw)
	return f.Name(), errors.Join(err, f.Close())
}

// Unique appends a number to a name, for namespaces: one that is deleted is never gone, because no controller runs.
func (s *Server) Unique(name string) string {
	return fmt.Sprintf("%s-%d", name, s.names.Add(1))
}

// Stop stops the server and removes its directory.
func (s *Server) Stop() error {
	var errs []error
	for i := len(s.procs) - 1; i >= 0; i-- {
		errs = append(errs, s.procs[i].stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.Dir))...)
}

// process is a program that ends with this one, even if this one is killed: a shell waits for the end of its input.
type process struct {
	name, log string
	group     int
	input     io.Closer
	done      chan struct{}
}

func launch(path, log string, args ...string) (*process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const script = `"$@" </dev/null & program=$!
(cat >/dev/null; kill $program; sleep 10; kill -9 $program) <&3 & watcher=$!
wait $program; status=$?; kill $watcher 2>/dev/null; exit $status`
	c := exec.Command("/bin/sh", append([]string{"-c", "exec 3<&0; " + script, "sh", path}, args...)...)
	c.Stdout, c.Stderr = f, f
	c.Env = append(os.Environ(), "GOGC=400") // trade memory for time: tests are short
	// Ctrl-C interrupts only the test, whose end stops the program.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &process{name: filepath.Base(path), log: log, group: c.Process.Pid, input: input, done: make(chan struct{})}
	go func() {
		_ = c.Wait() // a stopped program fails
		close(p.done)
	}()
	return p, nil
}

func (p *process) ended() error {
	select {
	case <-p.done:
		if text, _ := os.ReadFile(p.log); bytes.Contains(text, []byte(syscall.EADDRINUSE.Error())) {
			return fmt.Errorf("%s has ended: %w", p.name, syscall.EADDRINUSE)
		}
		return fmt.Errorf("%s has ended: %s", p.name, p.lastLine())
	default:
		return nil
	}
}

// lastLine returns the last line of the log, which Stop removes.
func (p *process) lastLine() []byte {
	text, _ := os.ReadFile(p.log)
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return lines[len(lines)-1]
}

// kill kills the program, and the shell with it.
func (p *process) kill() error {
	if err := syscall.Kill(-p.group, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.done // this has closed its input
	return nil
}

func (p *process) stop() error {
	_ = p.input.Close()
	select {
	case <-p.done:
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%s does not stop", p.name)
	}
}

// Binaries returns the directory of some binaries, such as kube-apiserver and etcd, which the testbed builds once.
func Binaries(ctx context.Context, names ...string) (string, error) {
	c := exec.CommandContext(ctx, "go", append([]string{"run", "github.com/kcpctl/kcpctl/test/testbed", "bin-dir"}, names...)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("build %s: %w: %s", strings.Join(names, ", "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
