package hutch

import (
	"slices"
	"strconv"
	"strings"
)

// InstanceType is a named size of a sandbox. A request with a type gets the type's limits, except for those that
// [CreateRequest.Limits] sets.
type InstanceType struct {
	Name   string  `json:"name"`
	CPU    float64 `json:"cpu"`    // cores
	Memory int     `json:"memory"` // MiB
	Disk   int     `json:"disk"`   // MiB of written files
}

// InstanceTypes are the types that every server has, unless its administrator redefines one of the names.
var InstanceTypes = []InstanceType{
	{"lite", 1.0 / 16, 256, 2 << 10},
	{"basic", 1.0 / 4, 1 << 10, 4 << 10},
	{"standard-1", 1.0 / 2, 4 << 10, 8 << 10},
	{"standard-2", 1, 6 << 10, 12 << 10},
	{"standard-3", 2, 8 << 10, 16 << 10},
	{"standard-4", 4, 12 << 10, 20 << 10},
}

// maxInstanceTypes limits the number of types of one server.
const maxInstanceTypes = 100

// AddInstanceTypes returns the types in list followed by own. A type in own replaces a type in list with the same name.
func AddInstanceTypes(list, own []InstanceType) ([]InstanceType, error) {
	list = slices.Clone(list)
	for _, t := range own {
		if err := t.Check(); err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(o InstanceType) bool { return o.Name == t.Name })
		list = append(list, t)
	}
	if len(list) > maxInstanceTypes {
		return nil, Errorf(Invalid, "there are %d instance types: at most %d are allowed", len(list), maxInstanceTypes)
	}
	return list, nil
}

// ParseInstanceType reads a type as CPU/MEMORY/DISK, in cores and MiB, such as 8/32768/65536.
func ParseInstanceType(name, text string) (InstanceType, error) {
	t := InstanceType{Name: name}
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return t, Errorf(Invalid, "the instance type %.80q is %.80q: write CPU/MEMORY/DISK in cores and MiB, such as 8/32768/65536", name, text)
	}
	for i, read := range []func(string) error{
		func(s string) (err error) { t.CPU, err = strconv.ParseFloat(s, 64); return err },
		func(s string) (err error) { t.Memory, err = strconv.Atoi(s); return err },
		func(s string) (err error) { t.Disk, err = strconv.Atoi(s); return err },
	} {
		if read(parts[i]) != nil {
			return t, Errorf(Invalid, "the instance type %.80q has %.40q in %.80q, which is not a number: write CPU/MEMORY/DISK in cores and MiB, such as 8/32768/65536", name, parts[i], text)
		}
	}
	return t, t.Check()
}

// Check refuses a type that no sandbox can have.
func (t InstanceType) Check() error {
	if err := CheckID(t.Name); err != nil {
		return Errorf(Invalid, "the name of an instance type: %v", err).Naming(AboutField, "instanceType")
	}
	if !(t.CPU > 0) || t.Memory <= 0 || t.Disk <= 0 {
		return Errorf(Invalid, "the instance type %q lacks cores, memory or disk: give all three", t.Name)
	}
	if err := (Limits{CPU: t.CPU, Memory: t.Memory, Disk: t.Disk}).Check(); err != nil {
		return Errorf(Invalid, "the instance type %q: %v", t.Name, err)
	}
	return nil
}

func checkOptionalType(name string) error {
	if name == "" {
		return nil
	}
	if err := CheckID(name); err != nil {
		return Errorf(Invalid, "the instance type %.80q is not a name: use one such as basic", name).Naming(AboutField, "instanceType")
	}
	return nil
}

// Fill returns l with the type's values where l has none.
func (t InstanceType) Fill(l Limits) Limits {
	if l.CPU == 0 {
		l.CPU = t.CPU
	}
	if l.Memory == 0 {
		l.Memory = t.Memory
	}
	if l.Disk == 0 {
		l.Disk = t.Disk
	}
	return l
}

// FindInstanceType returns the type with a name. The error for an unknown name lists the known ones.
func FindInstanceType(list []InstanceType, name string) (InstanceType, error) {
	known := make([]string, len(list))
	for i, t := range list {
		if t.Name == name {
			return t, nil
		}
		known[i] = t.Name
	}
	return InstanceType{}, Errorf(Invalid, "there is no instance type %.80q: use %s, or give limits", name, strings.Join(known, ", ")).Naming(AboutField, "instanceType")
}
