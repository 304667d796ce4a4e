package conversation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"hutch/internal/durable"
)

// A root has a folder for each conversation, and the conversation's files are
// in that folder's folder "files": ROOT/CONVERSATION/files. Earlier versions of
// Hutch kept the files in the conversation's folder itself; [upgrade] moves
// such a root.
const (
	filesFolder = "files"
	// layoutMark is a file that says that a root has today's layout.
	layoutMark = ".hutch-layout"
	// layoutStage is where an upgrade collects the folders it has moved.
	layoutStage = ".hutch-layout-new"
)

// folderNames are the names that folders of conversations can have.
var folderNames = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,127}(~[0-9a-f]{16})?$`)

// filesOf returns the path of the folder of a conversation's files, below the root.
func filesOf(folder string) string { return folder + "/" + filesFolder }

// upgrade gives a root today's layout. It only renames folders, and continues where an earlier upgrade was killed. own
// says that no program but Hutch can have made the root.
//
// Each conversation is first moved into the stage, already in today's layout. When all are in the stage, the mark is
// written, and they are moved back. So as long as there is no mark, the conversations in the root have the earlier
// layout, and afterwards they have today's.
func upgrade(root string, own bool) error {
	marked, err := exists(filepath.Join(root, layoutMark))
	if err != nil {
		return err
	}
	stage := filepath.Join(root, layoutStage)
	if !marked {
		if err := stageAll(root, stage, own); err != nil {
			return err
		}
		if err := mark(root); err != nil {
			return err
		}
	}
	return unstageAll(root, stage)
}

// mark makes the file that says that a root has today's layout.
func mark(root string) error {
	f, err := os.OpenFile(filepath.Join(root, layoutMark), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), durable.Sync(root))
}

// stageAll moves the conversations of a root of the earlier layout into stage.
func stageAll(root, stage string, own bool) error {
	folders, err := conversationFolders(root)
	if err != nil {
		return err
	}
	begun, err := exists(stage)
	if err != nil {
		return err
	}
	if !begun && !isEarlier(root, folders, own) {
		return nil
	}
	if err := os.MkdirAll(stage, 0o700); err != nil {
		return err
	}
	for _, name := range folders {
		to := filepath.Join(stage, name)
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(root, name), filepath.Join(to, filesFolder)); err != nil {
			return fmt.Errorf("move the conversation %s to today's layout: %w", name, err)
		}
		if err := durable.Sync(to); err != nil {
			return err
		}
	}
	return errors.Join(durable.Sync(stage), durable.Sync(root))
}

// unstageAll moves the folders in stage into the root.
func unstageAll(root, stage string) error {
	folders, err := conversationFolders(stage)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range folders {
		if err := os.Rename(filepath.Join(stage, name), filepath.Join(root, name)); err != nil {
			return fmt.Errorf("move the conversation %s to today's layout: %w", name, err)
		}
	}
	return errors.Join(durable.Sync(root), os.Remove(stage))
}

// isEarlier reports whether a root without the mark has the earlier layout.
// The root of another program has today's layout, but no mark either. It is
// recognized by a folder "files" in each conversation.
func isEarlier(root string, folders []string, own bool) bool {
	for _, name := range folders {
		if own || !hasFilesFolder(filepath.Join(root, name)) {
			return true
		}
	}
	return false
}

// hasFilesFolder reports whether a conversation's folder seems to have today's layout. If Hutch made the conversation's
// folder, which then has mode 0700, a folder "files" next to other entries can be one that a program made in /data.
func hasFilesFolder(folder string) bool {
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) == 0 {
		return err == nil
	}
	info, err := os.Lstat(filepath.Join(folder, filesFolder))
	if err != nil || !info.IsDir() {
		return false
	}
	outer, err := os.Lstat(folder)
	return err == nil && (len(entries) == 1 || outer.Mode().Perm() != 0o700)
}

// conversationFolders returns the names of the folders of conversations in dir.
func conversationFolders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && folderNames.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
