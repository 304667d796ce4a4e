package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/lisafs"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/runsc/cmd/sandboxsetup"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/fsgofer"
	"gvisor.dev/gvisor/runsc/fsgofer/extension"
	"gvisor.dev/gvisor/runsc/fsgofer/filter"
	"gvisor.dev/gvisor/runsc/specutils"

	"hutch/internal/driver/gvisor/gofer"
)

// openGofer opens hutch-gofer, a program in the same folder. If hutch-gofer is missing, the result is nil, and this
// program does the work of hutch-gofer.
func openGofer() *os.File {
	self, err := os.Executable()
	if err != nil {
		fail("find hutch-gofer", err)
	}
	program, err := os.Open(filepath.Join(filepath.Dir(self), "hutch-gofer"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fail("find hutch-gofer", err)
	}
	return program
}

// continueAsHutchGofer makes gVisor's gofer continue as hutch-gofer.
func continueAsHutchGofer() { extension.Register(&successor{program: openGofer()}) }

// successor is an extension of gVisor's gofer: gVisor calls PrepareGofer when the process has its file system.
type successor struct {
	program *os.File // nil if hutch-gofer is missing
	flags   *flag.FlagSet
}

func (s *successor) Name() string                       { return "hutch-gofer" }
func (s *successor) SetFlags(f *flag.FlagSet)           { s.flags = f }
func (s *successor) SeccompRules() seccomp.SyscallRules { return seccomp.NewSyscallRules() }
func (s *successor) TryHandleMount(*specs.Spec, *specs.Mount, string, bool) (lisafs.ConnectionImpl, lisafs.ConnectionOpts, error) {
	return nil, lisafs.ConnectionOpts{}, nil
}

// servedRoot is where gVisor has put the image, and processFiles the folder of
// the files that this process has open.
const servedRoot, processFiles = "/root", sandboxsetup.ProcFDBindMount

// PrepareGofer returns only with an error, or when hutch-gofer is missing. It does the work of gVisor's gofer up to the
// point where it serves, except for steps that only hutch-gofer itself can do.
func (s *successor) PrepareGofer(c extension.GoferPrepareContext) (extension.GoferPrepareResult, error) {
	err := hideLater(c.Spec)
	if err == nil {
		err = boundWritable(c.Spec)
	}
	if err != nil || s.program == nil {
		return extension.GoferPrepareResult{}, err
	}
	conf, err := config.NewFromFlags(flag.CommandLine)
	if err != nil {
		return extension.GoferPrepareResult{}, err
	}
	service, err := s.service(c.Spec, conf)
	if err != nil {
		return extension.GoferPrepareResult{}, err
	}
	return extension.GoferPrepareResult{}, s.become(service)
}

// socketDirOptions limits what a sandbox can put into the folder of the agent's socket: a socket, and little else. The
// agent makes a new socket after each save, and gVisor closes the files of deleted sockets a hundred at a time.
const socketDirOptions = "mode=0700,size=64k,nr_inodes=256"

// boundWritable covers each writable bind of the bundle with a small file system in memory. So no program in the
// sandbox can write to a folder of the host, not even as root. The file system is mounted only in this process's mount
// namespace, where the daemon finds it by /proc/PID/root, and ends with this process.
func boundWritable(spec *specs.Spec) error {
	for _, m := range spec.Mounts {
		if m.Type != "bind" || specutils.IsReadonlyMount(m.Options) {
			continue
		}
		err := unix.Mount("hutch", servedRoot+m.Destination, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, socketDirOptions)
		if err != nil {
			return fmt.Errorf("mount a file system in memory over %s: %w", m.Destination, err)
		}
	}
	return nil
}

// service reports to the sandbox where its mounts are, and returns the gofer's settings for serving them.
func (s *successor) service(spec *specs.Spec, conf *config.Config) (gofer.Service, error) {
	confs := s.flag("gofer-mount-confs").(*specutils.GoferMountConfFlags).GetArray()
	mounts, err := sandboxsetup.ResolveMounts(conf, spec.Mounts, servedRoot, confs)
	if err != nil {
		return gofer.Service{}, err
	}
	if err := sandboxsetup.WriteMounts(s.flag("mounts-fd").(int), mounts); err != nil {
		return gofer.Service{}, err
	}
	uds := conf.GetHostUDS()
	service := gofer.Service{
		Root:   servedRoot,
		Mounts: served(spec.Root.Readonly, mounts, confs, s.flag("io-fds").(*sandboxsetup.IntFlags).GetArray()),
		Files: fsgofer.Config{
			HostUDS: uds, HostFifo: conf.HostFifo, CharDevicePolicy: conf.CharacterDevicePolicy, DonateMountPointFD: conf.DirectFS,
		},
		Filter: filter.Options{UDSOpenEnabled: uds.AllowOpen(), UDSCreateEnabled: uds.AllowCreate(), DirectFS: conf.DirectFS},
		Exit:   s.flag("sync-sentry-exit-fd").(int),
	}
	return service, nil
}

func (s *successor) flag(name string) any { return flag.Get(s.flags.Lookup(name).Value) }

// served pairs each file system of the gofer with its socket: the root, and then the mounts in their order.
func served(readOnly bool, mounts []specs.Mount, confs []specutils.GoferMountConf, sockets []int) (list []gofer.Mount) {
	serve := func(path string, readOnly bool) {
		conf := confs[0]
		confs = confs[1:]
		if conf.ShouldUseLisafs() {
			list = append(list, gofer.Mount{Socket: sockets[0], Path: path, ReadOnly: readOnly || conf.ShouldUseOverlayfs()})
			sockets = sockets[1:]
		}
	}
	serve("/", readOnly)
	for _, m := range mounts {
		if specutils.HasMountConfig(m) {
			serve(m.Destination, specutils.IsReadonlyMount(m.Options))
		}
	}
	return list
}

// capabilities are those that gVisor leaves to its gofer.
var capabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_SYS_CHROOT"}

// become unmounts /proc, keeps only the capabilities above, and executes hutch-gofer, which it finds again among its
// open files.
func (s *successor) become(service gofer.Service) error {
	arg, err := service.Encode()
	if err != nil {
		return err
	}
	for _, name := range []string{"spec-fd", "rpc-fd"} {
		unix.CloseOnExec(s.flag(name).(int))
	}
	if err := os.Chdir(processFiles); err != nil {
		return err
	}
	runtime.LockOSThread()
	// CAP_SYS_ADMIN is for unmounting /proc. It is outside the bounding set, so hutch-gofer does not get it.
	last := append(slices.Clone(capabilities), "CAP_SYS_ADMIN")
	if err := sandboxsetup.ApplyCaps(&specs.LinuxCapabilities{
		Bounding: capabilities, Inheritable: capabilities, Ambient: capabilities, Effective: last, Permitted: last,
	}); err != nil {
		return err
	}
	sandboxsetup.UmountProcInProcess()
	err = unix.Exec(strconv.Itoa(int(s.program.Fd())), append(os.Args, arg), nil)
	return fmt.Errorf("execute hutch-gofer: %w", err)
}
