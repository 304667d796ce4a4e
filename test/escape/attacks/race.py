# Replaces files of the agent, in folders to which anyone can write, while the agent
# creates them. The test calls the daemon meanwhile.
FOLDERS = ["/tmp", "/var/tmp", "/workspace", "/dev/shm"]
TARGET = "/home"  # belongs to root, and only root can write to it
IN_CREATE, IN_MOVED_TO = 0x100, 0x80
before = (os.stat(TARGET).st_uid, os.stat(TARGET).st_mode, sorted(os.listdir(TARGET)))


def won():
    now = (os.stat(TARGET).st_uid, os.stat(TARGET).st_mode, sorted(os.listdir(TARGET)))
    return now != before and "race won: %r is %r now" % (before, now)


def exchange(path):
    """Puts a link to the target where the agent has just made something."""
    try:
        os.rename(path, path + ".aside")
        os.symlink(TARGET, path)
    except OSError:
        pass


def race():
    fd = libc.inotify_init()
    watched = {libc.inotify_add_watch(fd, f.encode(), IN_CREATE | IN_MOVED_TO): f for f in FOLDERS}
    print("racing", flush=True)
    while True:
        events = os.read(fd, 65536)
        while events:
            wd, _, _, size = struct.unpack("iIII", events[:16])
            name = events[16:16 + size].rstrip(b"\0").decode(errors="replace")
            events = events[16 + size:]
            if name and not name.endswith(".aside") and name.startswith((".hutch-", "hutch-")):
                exchange(watched[wd] + "/" + name)
        if said := won():
            print(said, flush=True)
            time.sleep(3600)


import time
race()
