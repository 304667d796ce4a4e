package openterminal

import (
	"context"
	"errors"
	"net/url"
	"path"
	"strings"

	"hutch"
	"hutch/internal/compat"
)

// A skill is a folder with a file SKILL.md, which tells a model how to do something. Open WebUI shows models the names
// and descriptions of the skills in the user's home, and the text of a skill when the model asks for it.

// skillFolders are where skills are, below the home. Of several skills with one name, the first counts.
var skillFolders = []string{".agents/skills", ".cptr/skills", ".claude/skills", ".codex/skills"}

const (
	maxSkills      = 200
	maxSkillHead   = 64 << 10 // bytes of SKILL.md that are read for a list
	maxDescription = 1024     // bytes
	maxResources   = 50       // files of a skill that are named
	resourceDepth  = 4        // folders deep
)

// skill is a skill in a list.
type skill struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Location    string `json:"location"` // of SKILL.md
	Scope       string `json:"scope"`
	Source      string `json:"source"`
}

// skillText is a skill with its text.
type skillText struct {
	skill
	Content   string   `json:"content"`
	Resources []string `json:"resources"` // other files of the skill
}

func (c *call) skills() (any, error) { return c.listSkills() }

// listSkills returns the skills of the user. Files that are not skills are skipped.
func (c *call) listSkills() ([]skill, error) {
	list, seen := []skill{}, map[string]bool{}
	for _, folder := range skillFolders {
		if len(list) == maxSkills {
			break
		}
		names, err := c.foldersIn(path.Join(c.home, folder))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			s, err := c.skillIn(path.Join(c.home, folder, name))
			if err != nil {
				return nil, err
			}
			if s.Description == "" || seen[s.Name] {
				continue
			}
			seen[s.Name] = true
			if list = append(list, s); len(list) == maxSkills {
				break
			}
		}
	}
	return list, nil
}

// foldersIn returns the names of the folders in a folder. It returns none for a folder that does not exist.
func (c *call) foldersIn(dir string) (names []string, err error) {
	err = c.svc.ListFiles(c.ctx, c.sandbox, hutch.ListRequest{Path: dir}, func(f hutch.FileInfo) error {
		if f.Type == hutch.Directory || f.Type == hutch.Symlink {
			names = append(names, f.Name)
		}
		if len(names) == maxSkills {
			return errEnough
		}
		return nil
	})
	return names, c.serious(err)
}

// serious returns nil for an error about the user's files, unless the request has ended, and other errors unchanged.
func (c *call) serious(err error) error {
	switch hutch.KindOf(err) {
	case hutch.NotFound, hutch.Invalid, hutch.Denied, hutch.Conflict:
		return context.Cause(c.ctx)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// skillIn describes the skill in a folder. For a folder without a skill it returns the zero value.
func (c *call) skillIn(dir string) (skill, error) {
	location := path.Join(dir, "SKILL.md")
	b := compat.NewBuffer(c.ctx, maxSkillHead)
	if _, err := c.svc.ReadFile(c.ctx, c.sandbox, hutch.ReadRequest{Path: location, Length: maxSkillHead}, b); err != nil {
		return skill{}, c.serious(err)
	}
	head, _ := frontMatter(valid(b.String()))
	name := strings.TrimSpace(head["name"])
	if name == "" {
		name = valid(path.Base(dir))
	}
	about := strings.TrimSpace(head["description"])
	about = strings.ToValidUTF8(about[:min(len(about), maxDescription)], "")
	return skill{"terminal:" + escaped(name), name, about, valid(location), "global", "terminal"}, nil
}

// escaped encodes a name as Python's quote does, which writes %20 for a space.
func escaped(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "+", "%20") }

var errNoSkill = hutch.Errorf(hutch.NotFound, "Skill not found")

func (c *call) readSkill() (any, error) {
	name := c.r.URL.Query().Get("name")
	list, err := c.listSkills()
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		if s.Name != name {
			continue
		}
		text, err := c.text(s.Location)
		if err != nil {
			return nil, err
		}
		_, body := frontMatter(valid(text))
		resources, err := c.resources(path.Dir(s.Location))
		return skillText{s, body, resources}, err
	}
	return nil, errNoSkill
}

// resources returns the files of a skill other than SKILL.md.
func (c *call) resources(dir string) ([]string, error) {
	list := []string{}
	err := c.svc.ListFiles(c.ctx, c.sandbox, hutch.ListRequest{Path: dir, Recursive: true, Depth: resourceDepth}, func(f hutch.FileInfo) error {
		if f.Type != hutch.RegularFile || f.Name == "SKILL.md" {
			return nil
		}
		list = append(list, valid(strings.TrimPrefix(f.Path, dir+"/")))
		if len(list) == maxResources {
			return errEnough
		}
		return nil
	})
	return list, c.serious(err)
}

// frontMatter splits the text of a skill into the values between its first two lines of ---, which are in the first
// maxSkillHead bytes, and the rest. The values are "key: value", or lines after "key: >" or "key: |" that are indented:
// a subset of YAML, because many skills have descriptions that are not valid YAML. Of a value of several lines only the
// beginning is kept.
func frontMatter(text string) (head map[string]string, body string) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	rest, ok := strings.CutPrefix(text, "---\n")
	at := strings.Index(rest[:min(len(rest), maxSkillHead)], "\n---")
	if !ok || at < 0 {
		return nil, strings.TrimSpace(text)
	}
	_, body, _ = strings.Cut(rest[at+1:], "\n")
	head = map[string]string{}
	block, joint := "", "" // the key whose value has several lines, and what joins them
	for _, line := range strings.Split(rest[:at], "\n") {
		if block != "" && strings.TrimLeft(line, " \t") != line {
			if len(head[block]) < maxDescription {
				head[block] += joint + strings.TrimSpace(line)
			}
			continue
		}
		key, value, isKey := strings.Cut(line, ":")
		if block = ""; !isKey || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch strings.TrimRight(value, "+-") {
		case ">":
			block, joint, value = key, " ", ""
		case "|":
			block, joint, value = key, "\n", ""
		}
		head[key] = strings.Trim(value, `"'`)
	}
	return head, strings.TrimSpace(body)
}
