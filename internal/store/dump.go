package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"

	"hutch"
)

// Dump reads the store in the file at path while a server can use it. It returns the records, and a copy of the file at
// the same moment. It changes nothing: it does not even bring the file to a newer format.
func Dump(ctx context.Context, path string) (records []Record, image []byte, err error) {
	dsn := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: url.Values{
		"mode": {"rw"}, "_pragma": {"busy_timeout(5000)"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read store %s: %w", path, err)
	}
	defer c.Close()
	if _, err = c.ExecContext(ctx, "begin"); err == nil { // all reads in the transaction see the same moment
		records, image, err = dump(ctx, c)
		_, ended := c.ExecContext(context.WithoutCancel(ctx), "rollback")
		err = cmp.Or(err, ended)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read store %s: %w", path, err)
	}
	return records, image, nil
}

func dump(ctx context.Context, c *sql.Conn) (records []Record, image []byte, err error) {
	var v int
	if err := c.QueryRowContext(ctx, "pragma user_version").Scan(&v); err != nil {
		return nil, nil, err
	}
	if v > version {
		return nil, nil, hutch.Errorf(hutch.Unsupported, "it was written by a newer hutch (format %d, this one knows %d): use the program of that version", v, version)
	}
	err = readRows(ctx, c, `select id, record from sandboxes order by created, id`, nil, func(rows *sql.Rows) error {
		var id string
		var doc []byte
		var r Record
		if err := rows.Scan(&id, &doc); err != nil {
			return err
		}
		if err := json.Unmarshal(doc, &r); err != nil {
			return fmt.Errorf("sandbox %s: %w", id, err)
		}
		r.Key = cmp.Or(r.Key, id)
		records = append(records, r)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = c.Raw(func(conn any) (err error) {
		image, err = conn.(interface{ Serialize() ([]byte, error) }).Serialize()
		return err
	})
	return records, image, err
}
