package native

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/netstack"
	"hutch/internal/wire"
)

// BenchmarkNetwork measures connections from an instance to a server on this machine when all connections are allowed.
// For comparison, it runs the same programs without an instance, and with the alternative design: the kernel's routing
// and nftables, which pass connections to a proxy (needs root and nft).
func BenchmarkNetwork(b *testing.B) {
	for _, way := range []struct {
		name string
		make func(b *testing.B, to string) func(command string) string
	}{{"loopback", loopback}, {"instance", inInstance}, {"tproxy", tproxy}} {
		b.Run("send/"+way.name, func(b *testing.B) { benchSend(b, way.make) })
		b.Run("connect/"+way.name, func(b *testing.B) { benchConnect(b, way.make) })
	}
}

const outside = "93.184.215.14" // the address of the server as seen from inside

func benchSend(b *testing.B, way func(*testing.B, string) func(string) string) {
	const megabytes = 512
	received := make(chan int64)
	host, port := serve(b, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		received <- n
	})
	run := way(b, net.JoinHostPort(host, port))
	b.SetBytes(megabytes << 20)
	for b.Loop() {
		ran := make(chan struct{})
		go func() {
			run(fmt.Sprintf("dd if=/dev/zero bs=1M count=%d status=none > /dev/tcp/$SERVER/%s", megabytes, port))
			close(ran)
		}()
		n := <-received
		<-ran
		if n != megabytes<<20 {
			b.Fatalf("%d bytes", n)
		}
	}
}

func benchConnect(b *testing.B, way func(*testing.B, string) func(string) string) {
	host, port := serve(b, func(c net.Conn) { io.Copy(c, c) })
	run := way(b, net.JoinHostPort(host, port))
	const times = 200
	total := 0
	for b.Loop() {
		out := run(fmt.Sprintf(`begin=${EPOCHREALTIME/./}; for i in {1..%d}; do exec 3<>/dev/tcp/$SERVER/%s; exec 3<&-; done; echo $((${EPOCHREALTIME/./} - begin))`, times, port))
		n, err := strconv.Atoi(strings.TrimSpace(out))
		if err != nil {
			b.Fatalf("%q", out)
		}
		total += n
	}
	b.ReportMetric(float64(total)/float64(times*b.N), "µs/connect")
}

// serve serves on this machine until the benchmark is over.
func serve(b *testing.B, handle func(net.Conn)) (host, port string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go each(l, handle)
	host, port, _ = net.SplitHostPort(l.Addr().String())
	return host, port
}

func each(l net.Listener, handle func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			handle(c)
		}()
	}
}

// relay copies between a connection from inside and a server.
func relay(inside net.Conn, to net.Conn) {
	done := make(chan struct{})
	go func() {
		io.Copy(inside, to)
		inside.(interface{ CloseWrite() error }).CloseWrite()
		close(done)
	}()
	io.Copy(to, inside)
	to.(*net.TCPConn).CloseWrite()
	<-done
	to.Close()
}

func loopback(b *testing.B, _ string) func(string) string {
	return func(command string) string {
		cmd := exec.Command("bash", "-c", command)
		cmd.Env = append(os.Environ(), "SERVER=127.0.0.1")
		out, err := cmd.Output()
		if err != nil {
			b.Error(err)
		}
		return string(out)
	}
}

// everything is a handler that allows every connection, and connects all of them to one server.
type everything struct{ to string }

func (e everything) TCP(_ context.Context, f netstack.Flow) {
	to, err := net.Dial("tcp", e.to)
	if err != nil {
		return
	}
	inside, err := f.Accept()
	if err != nil {
		to.Close()
		return
	}
	relay(inside, to)
}

func (e everything) UDP(context.Context, netstack.Flow) {}

func inInstance(b *testing.B, to string) func(string) string {
	s := spec(root(b), "bench")
	s.Network, s.Limits.CPU = true, 2
	inst, err := newDriver(b, b.TempDir()).Create(b.Context(), s)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { inst.Destroy(context.Background()) })
	file, err := inst.(driver.Networked).Network()
	if err != nil {
		b.Skip(err)
	}
	stack, err := netstack.Start(file, everything{to}, netstack.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	agent := wire.NewClient(inst.Dial, token)
	b.Cleanup(func() { agent.Close(); stack.Close() })
	return func(command string) string {
		var out bytes.Buffer
		_, err := agent.Run(context.Background(), wire.Start{ID: hutch.NewID("x"), Command: "SERVER=" + outside + "; " + command, TimeoutMS: 60_000}, nil,
			func(o hutch.Output) error { out.Write(o.Data); return nil })
		if err != nil {
			b.Error(err)
		}
		return out.String()
	}
}

// tproxy creates a network namespace for the client and one for the router, so that the host's own network does not
// change. The proxy is this process, just as the daemon would be the proxy.
func tproxy(b *testing.B, to string) func(string) string {
	if os.Geteuid() != 0 {
		b.Skip("only root can route")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		b.Skip(err)
	}
	client := exec.Command("bash", "-c", `while read -r command; do SERVER=`+outside+`; eval "$command"; echo "end of output"; done`)
	client.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, _ := client.StdinPipe()
	out, _ := client.StdoutPipe()
	if err := client.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); client.Wait() })
	made := make(chan error)
	go func() { made <- router(b, client.Process.Pid, to) }()
	if err := <-made; err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	return func(command string) string {
		fmt.Fprintln(in, command)
		var said strings.Builder
		for lines.Scan() && lines.Text() != "end of output" {
			said.WriteString(lines.Text())
		}
		return said.String()
	}
}

const rules = `
ip link set lo up
ip link add outer type veth peer name eth0 netns $1
ip addr add 192.0.0.1/30 dev outer
ip link set outer up
nsenter -t $1 -n sh -c 'ip link set lo up; ip addr add 192.0.0.2/30 dev eth0; ip link set eth0 up; ip route add default via 192.0.0.1'
ip rule add fwmark 1 lookup 100
ip route add local default dev lo table 100
nft -f - <<END
table ip hutch {
	chain pre {
		type filter hook prerouting priority mangle
		iifname "outer" ip protocol tcp tproxy to 127.0.0.1:$2 meta mark set 1 accept
	}
}
END
`

// router creates the router's namespace, and in it the proxy's listener. The thread of this goroutine stays in that
// namespace.
func router(b *testing.B, client int, to string) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	// Programs that this thread starts are in the namespace, too.
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	transparent := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) (err error) {
		conn.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
		return err
	}}
	l, err := transparent.Listen(b.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.Cleanup(func() { l.Close() })
	go each(l, func(inside net.Conn) {
		if c, err := net.Dial("tcp", to); err == nil {
			relay(inside, c)
		}
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	out, err := exec.Command("sh", "-ec", rules, "sh", fmt.Sprint(client), port).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
