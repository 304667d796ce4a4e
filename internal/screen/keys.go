package screen

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"hutch"
)

// named are the keysyms of X11 that have no character, by the names that models, xdotool and browsers use, in lower
// case. https://www.x.org/releases/X11R7.7/doc/xproto/x11protocol.html#keysym_encoding
var named = map[string]uint32{
	"backspace": 0xff08, "tab": 0xff09, "return": 0xff0d, "enter": 0xff0d, "kp_enter": 0xff8d, "pause": 0xff13, "scroll_lock": 0xff14, "escape": 0xff1b, "esc": 0xff1b,
	"delete": 0xffff, "del": 0xffff, "home": 0xff50, "left": 0xff51, "up": 0xff52, "right": 0xff53, "down": 0xff54,
	"arrowleft": 0xff51, "arrowup": 0xff52, "arrowright": 0xff53, "arrowdown": 0xff54,
	"prior": 0xff55, "page_up": 0xff55, "pageup": 0xff55, "next": 0xff56, "page_down": 0xff56, "pagedown": 0xff56, "end": 0xff57,
	"print": 0xff61, "insert": 0xff63, "menu": 0xff67, "num_lock": 0xff7f, "caps_lock": 0xffe5, "capslock": 0xffe5,
	"shift": 0xffe1, "shift_l": 0xffe1, "shift_r": 0xffe2, "ctrl": 0xffe3, "control": 0xffe3, "control_l": 0xffe3, "control_r": 0xffe4,
	"alt": 0xffe9, "alt_l": 0xffe9, "option": 0xffe9, "alt_r": 0xffea, "altgr": 0xfe03, "meta": 0xffe7,
	"super": 0xffeb, "super_l": 0xffeb, "super_r": 0xffec, "cmd": 0xffeb, "command": 0xffeb, "win": 0xffeb, "windows": 0xffeb,
	"space": ' ', "plus": '+', "minus": '-', "equal": '=', "comma": ',', "period": '.', "slash": '/', "backslash": '\\', "semicolon": ';',
	"apostrophe": '\'', "grave": '`', "bracketleft": '[', "bracketright": ']', "underscore": '_', "asterisk": '*', "colon": ':', "question": '?',
}

// keysym returns the keysym of a key by its name, or of a character.
func keysym(name string) (uint32, error) {
	if r, n := utf8.DecodeRuneInString(name); n == len(name) && n > 0 {
		return symbol(r), nil
	}
	lower := strings.ToLower(name)
	if sym, ok := named[lower]; ok {
		return sym, nil
	}
	if digits, ok := strings.CutPrefix(lower, "f"); ok {
		if n, err := strconv.Atoi(digits); err == nil && n >= 1 && n <= 24 {
			return 0xffbe + uint32(n) - 1, nil
		}
	}
	return 0, hutch.Errorf(hutch.Invalid, "there is no key %.40q: use a character or a name such as Return, Tab, Escape, Page_Down, F5, ctrl, shift, alt or super", name).Naming(hutch.AboutField, "text")
}

// symbol returns the keysym of a character.
func symbol(r rune) uint32 {
	switch {
	case r == '\n' || r == '\r':
		return named["return"]
	case r == '\t':
		return named["tab"]
	case r == '\b':
		return named["backspace"]
	case r >= 0x20 && r < 0x7f, r >= 0xa0 && r <= 0xff:
		return uint32(r)
	}
	return 0x01000000 | uint32(r)
}

// chords reads keys that are pressed together, such as "ctrl+c". A text can have several of these, separated by blanks.
func chords(text string) (list [][]uint32, err error) {
	words := strings.Fields(text)
	if len(words) == 0 { // only blanks, which are keys too
		words = []string{"space"}
	}
	for _, word := range words {
		if word == "+" {
			word = "plus"
		} else if keys, ok := strings.CutSuffix(word, "++"); ok {
			word = keys + "+plus"
		}
		var keys []uint32
		for _, name := range strings.Split(word, "+") {
			sym, err := keysym(name)
			if err != nil {
				return nil, err
			}
			keys = append(keys, sym)
		}
		list = append(list, keys)
	}
	return list, nil
}
