package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"hutch"
	"hutch/internal/driver"
)

// Options configure the driver.
type Options struct {
	// Dir is the driver's state folder, as in driver.Options.
	Dir string
	// Pod is a file with the template of pods; see docs/runtimes.md. If it is empty, the driver uses the template of
	// the previous driver on this folder, so that it finds that driver's pods again.
	Pod string
}

// ErrNoTemplate is the error of New if there is no template.
var ErrNoTemplate = errors.New("no template of pods")

// Driver creates instances. It implements driver.Driver.
type Driver struct {
	dir      string
	template *core.Pod
	text     []byte // text of the template
	config   *rest.Config
	api      *rest.RESTClient
	noAPI    error // the reason why api cannot be used
	trials   trials

	mu     sync.Mutex
	server string // see id
}

var _ driver.Driver = (*Driver)(nil)

var (
	scheme     = runtime.NewScheme()
	parameters = runtime.NewParameterCodec(scheme)
)

func init() {
	core.AddToScheme(scheme)
	meta.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
}

// New returns a driver that keeps its state in a folder. It uses the cluster of $KUBECONFIG. Without that, it uses the
// cluster in which this program runs as a pod, or else the cluster of ~/.kube/config. It makes no connection.
func New(opt Options) (*Driver, error) {
	dir, err := filepath.Abs(opt.Dir)
	if err != nil {
		return nil, err
	}
	d := &Driver{dir: dir}
	path := cmp.Or(opt.Pod, filepath.Join(dir, templateFile))
	if _, err := os.Stat(path); opt.Pod == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoTemplate
	}
	if d.text, d.template, err = readTemplate(path); err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "%v: correct the file of --kubernetes-pod", err)
	}
	d.config, d.api, d.noAPI = connect()
	return d, nil
}

func connect() (*rest.Config, *rest.RESTClient, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // the error's own text names a variable that has no effect here
		return nil, nil, errors.New("no file names a cluster, and this is not a pod with a service account")
	} else if err != nil {
		return nil, nil, err
	}
	config.APIPath = "/api"
	config.GroupVersion = &schema.GroupVersion{Version: "v1"}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = "hutch"
	config.QPS = -1 // the API server limits its clients by itself
	api, err := rest.RESTClientFor(config)
	return config, api, err
}

// Name is "kubernetes".
func (d *Driver) Name() string { return "kubernetes" }

// createTime bounds how long a pod takes to start, with its image.
const createTime = 5 * time.Minute

// Defaults implements driver.Driver.
func (d *Driver) Defaults() driver.Defaults {
	usual := driver.Usual
	usual.FilesInMemory = true
	usual.CreateTime = createTime
	return usual
}

// client returns the client of the cluster, if there is one.
func (d *Driver) client() (*rest.RESTClient, error) {
	if d.noAPI != nil {
		return nil, hutch.Errorf(hutch.Unavailable, "there is no cluster for the runtime kubernetes: set KUBECONFIG, or run the server in a pod with a service account").Because(d.noAPI)
	}
	return d.api, nil
}

const (
	idFile       = "server"
	templateFile = "pod.yaml"
)

// id returns the id of this server in the labels of its pods. The id is made when it is first needed, and kept in the
// state folder.
func (d *Driver) id() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != "" {
		return d.server, nil
	}
	path := filepath.Join(d.dir, idFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(strings.ToLower(rand.Text()[:10]))
		err = errors.Join(os.MkdirAll(d.dir, 0o700), os.WriteFile(path, text, 0o600))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(d.dir, templateFile), d.text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("read the id of this server: %w", err)
	}
	if err := hutch.CheckID(string(text)); err != nil {
		return "", fmt.Errorf("read the id of this server in %s: %w", path, err)
	}
	d.server = string(text)
	return d.server, nil
}

// used reports whether this server ever made a pod.
func (d *Driver) used() bool {
	_, err := os.Stat(filepath.Join(d.dir, idFile))
	return err == nil
}

// get reads a pod.
func (d *Driver) get(ctx context.Context, name string) (*core.Pod, error) {
	var pod core.Pod
	err := d.api.Get().Namespace(d.template.Namespace).Resource("pods").Name(name).Do(ctx).Into(&pod)
	return &pod, err
}
