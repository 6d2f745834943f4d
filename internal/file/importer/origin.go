package importer

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/kcpctl/kcpctl/internal/file/setup"
)

func asErrors(err error) (setup.Errors, bool) { return errors.AsType[setup.Errors](err) }

// origin returns the position in the input of a field of the setup file, or of the closest parent that has one.
func (a *assembly) origin(path string) (file string, line, column int) {
	for at := a.before(path); at != ""; at = parent(at) {
		for _, o := range a.all() {
			if v, ok := o.originOf(at); ok {
				return v.file, v.node.Line, v.node.Column
			}
			if o.prefix == at {
				return o.file, o.root.Line, o.root.Column
			}
			if v, ok := o.firstBelow(at); ok {
				return v.file, v.node.Line, v.node.Column
			}
		}
	}
	first := a.all()[0]
	return first.file, first.root.Line, first.root.Column
}

// before returns the field of the root shard that share moved to a field of the whole setup, or the same field.
func (a *assembly) before(path string) string {
	for _, moved := range [][2]string{
		{"spec.version", ".image.tag"}, {"spec.image.", ".image."}, {"spec.defaults.", "."},
	} {
		if rest, ok := strings.CutPrefix(path, moved[0]); ok {
			return a.root.prefix + moved[1] + rest
		}
	}
	return path
}

// originOf returns the field of the object that a field of the setup file comes from.
func (o *object) originOf(path string) (value, bool) {
	if m := regexp.MustCompile(`^(.*)\.extraArgs\[(\d+)\]$`).FindStringSubmatch(path); m != nil && m[1] == o.prefix {
		i, _ := strconv.Atoi(m[2])
		if args := o.component.ExtraArgs; i < len(args) {
			v, ok := o.argsFrom[flagName(args[i])]
			return v, ok
		}
	}
	for to, v := range o.origins {
		if to != "" && o.absolute(to) == path {
			return v, true
		}
	}
	return value{}, false
}

// firstBelow returns the first field of the object that is mapped to a field below another.
func (o *object) firstBelow(path string) (first value, ok bool) {
	for to, v := range o.origins {
		if to != "" && strings.HasPrefix(o.absolute(to), path+".") && (!ok || v.node.Line < first.node.Line) {
			first, ok = v, true
		}
	}
	return first, ok
}

// parent removes the last segment of a path: .name or [key].
func parent(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:max(strings.LastIndexByte(path, '['), 0)]
	}
	return path[:max(strings.LastIndexByte(path, '.'), 0)]
}
