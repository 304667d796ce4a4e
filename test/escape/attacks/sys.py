import itertools


def listed(folder):
    return os.listdir("/sys/" + folder)


attempt("a program for hotplug", lambda: opens("/sys/kernel/uevent_helper", os.O_WRONLY))
attempt("power", lambda: any_of(lambda n: opens("/sys/power/" + n, os.O_WRONLY), ["state", "disk", "wake_lock"]))
attempt("parameters of modules", lambda: opens("/sys/module/kernel/parameters/panic", os.O_WRONLY))
attempt("processors", lambda: opens("/sys/devices/system/cpu/cpu1/online", os.O_WRONLY))
attempt("memory merging", lambda: opens("/sys/kernel/mm/ksm/run", os.O_WRONLY))
attempt("anything below /sys", lambda: any_of(lambda p: opens(p, os.O_WRONLY), [
    p for p in itertools.islice(walk("/sys", spare=()), 20000) if os.path.isfile(p) and not os.path.islink(p)]))
attempt("look into firmware", lambda: any_of(listed, ["firmware", "firmware/efi", "firmware/dmi", "firmware/acpi"]))
attempt("look into debugging", lambda: any_of(listed, ["kernel/debug", "kernel/tracing"]))
attempt("look into security", lambda: any_of(listed, ["kernel/security", "fs/selinux"]))
attempt("look into programs and crashes of the kernel", lambda: any_of(listed, ["fs/bpf", "fs/pstore"]))
attempt("look into power meters", lambda: listed("devices/virtual/powercap"))
attempt("look into the machine's identity", lambda: any_of(listed, ["class/dmi/id", "devices/virtual/dmi/id"]))
attempt("look into disks", lambda: any_of(listed, ["class/block", "block"]))
