package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// These are the parts of SPDX 2.3 that a list of Go modules needs: https://spdx.github.io/spdx-spec/v2.3.
type (
	spdx struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      spdxCreation   `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []spdxRelation `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name      string         `json:"name"`
		ID        string         `json:"SPDXID"`
		Version   string         `json:"versionInfo"`
		Location  string         `json:"downloadLocation"`
		Source    string         `json:"sourceInfo,omitempty"`
		Analyzed  bool           `json:"filesAnalyzed"`
		Concluded string         `json:"licenseConcluded"`
		Declared  string         `json:"licenseDeclared"`
		Copyright string         `json:"copyrightText"`
		Sums      []spdxSum      `json:"checksums,omitempty"`
		Refs      []spdxExternal `json:"externalRefs,omitempty"`
	}
	spdxSum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxExternal struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelation struct {
		From string `json:"spdxElementId"`
		To   string `json:"relatedSpdxElement"`
		Type string `json:"relationshipType"`
	}
)

const unsaid = "NOASSERTION"

// listModules lists the Go modules in the programs of an architecture, as the programs themselves name them.
func (r release) listModules(arch, folder string) ([]byte, error) {
	name := fmt.Sprintf("hutch-%s-linux-%s", r.version, arch)
	doc := spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Creation: spdxCreation{r.time.Format(time.RFC3339), []string{"Tool: hutch-tools-dist"}},
	}
	used := map[string]spdxPackage{}
	all := sha256.New()
	for _, program := range programs {
		path := filepath.Join(folder, program)
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if got := setting(info, "GOARCH"); got != arch {
			return nil, fmt.Errorf("%s is for %s", path, got)
		}
		all.Write(content)
		own := spdxPackage{Name: program, ID: spdxID("program", program, ""), Version: r.version, Location: unsaid, Concluded: unsaid, Declared: "Apache-2.0", Copyright: unsaid,
			Sums: []spdxSum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(content))}}}
		doc.Packages = append(doc.Packages, own)
		doc.Relationships = append(doc.Relationships, spdxRelation{doc.ID, own.ID, "DESCRIBES"})
		for _, m := range modules(info) {
			used[m.ID] = m
			doc.Relationships = append(doc.Relationships, spdxRelation{own.ID, m.ID, "DEPENDS_ON"})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(used)) {
		doc.Packages = append(doc.Packages, used[id])
	}
	doc.Namespace = fmt.Sprintf("https://spdx.org/spdxdocs/%s-%x", name, all.Sum(nil)[:16])
	text, err := json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}

// modules returns the Go modules in a program, and Go's own library.
func modules(info *debug.BuildInfo) (list []spdxPackage) {
	list = append(list, module("stdlib", strings.TrimPrefix(info.GoVersion, "go"), ""))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, module(m.Path, m.Version, m.Sum))
	}
	return list
}

func module(path, version, sum string) spdxPackage {
	p := spdxPackage{
		Name: path, ID: spdxID("module", path, version), Version: version, Location: "https://proxy.golang.org/" + path + "/@v/" + version + ".zip",
		Concluded: unsaid, Declared: unsaid, Copyright: unsaid,
		Refs: []spdxExternal{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
	}
	if path == "stdlib" {
		p.Location = "https://go.dev/dl/go" + version + ".src.tar.gz"
	}
	if sum != "" {
		p.Source = "go.sum " + sum
	}
	return p
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func spdxID(kind, name, version string) string {
	return "SPDXRef-" + kind + "-" + notInID.ReplaceAllString(strings.Trim(name+"-"+version, "-"), "-")
}
