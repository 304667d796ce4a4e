import { SandboxBase } from "./base.js"
import type { Query } from "./connection.js"
import { fromBase64, toBase64 } from "./encoding.js"
import { HutchError, problemError } from "./error.js"
import { follow } from "./output.js"
import type { Progress } from "./upload.js"
import type { Abortable, Content, Edit, FileEvent, FileInfo, GitRepository, GitStatus, Match, Problem } from "./types.js"

/** How a file is written. */
export interface WriteOptions extends Abortable {
  /** With base64, the content is text in base64. */
  encoding?: "utf-8" | "base64"
  /** Permissions in octal, such as "0755"; default 0644, or those of the existing file. */
  mode?: string
  /** Appends to the file. */
  append?: boolean
  /** Refuses a file that exists. */
  create?: boolean
  /** Makes the folders above. */
  parents?: boolean
  /** Called with the number of bytes sent. Only browsers call it, and not for a stream. */
  onProgress?: Progress
}

/** Which part of a file is read. */
export interface ReadOptions extends Abortable {
  /** Bytes to skip; negative counts from the end. */
  offset?: number
  /** Bytes at most. */
  length?: number
  /** From 1, in place of offset. */
  firstLine?: number
  lastLine?: number
}

/** Which entries of a folder are listed. */
export interface ListOptions extends Abortable {
  recursive?: boolean
  /** With recursive, how deep. */
  depth?: number
  /** Names that begin with a dot, too. */
  includeHidden?: boolean
  /** A pattern such as *.ts or src/**. */
  glob?: string
  limit?: number
}

/** How a repository is cloned. */
export interface GitCheckoutOptions extends Abortable {
  branch?: string
  /** The folder to make; default: the repository's name below /workspace. */
  targetDir?: string
  /** Commits; default all. */
  depth?: number
  username?: string
  password?: string
  /** Milliseconds; default ten minutes. */
  timeout?: number
}

/** Files and repositories of a sandbox. Paths are absolute, or relative to /workspace. */
export class SandboxFiles extends SandboxBase {
  /** Writes a file, as a whole or not at all. */
  writeFile(path: string, content: Content, options: WriteOptions = {}): Promise<FileInfo> {
    const { encoding, signal, onProgress, ...query } = options
    const body = encoding === "base64" && typeof content === "string" ? fromBase64(content) : content
    // A repeated call would append twice.
    return this.json("PUT", ["files", "content"], { query: { path, ...query }, content: body, signal, progress: onProgress, idempotent: !options.append && !options.create })
  }

  /** Reads a file: as text, or as bytes, base64 or a stream. */
  readFile(path: string, options?: ReadOptions & { encoding?: "utf-8" | "base64" }): Promise<string>
  readFile(path: string, options: ReadOptions & { encoding: "bytes" }): Promise<Uint8Array>
  readFile(path: string, options: ReadOptions & { encoding: "stream" }): Promise<ReadableStream<Uint8Array>>
  async readFile(path: string, options: ReadOptions & { encoding?: "utf-8" | "base64" | "bytes" | "stream" } = {}): Promise<string | Uint8Array | ReadableStream<Uint8Array>> {
    const { encoding = "utf-8", signal, ...query } = options
    const response = await this.send("GET", ["files", "content"], { query: { path, ...query }, accept: "*/*", signal })
    if (encoding === "stream") return response.body ?? new ReadableStream<Uint8Array>({ start: (c) => { c.close() } })
    try {
      const bytes = new Uint8Array(await response.arrayBuffer())
      if (encoding === "bytes") return bytes
      return encoding === "base64" ? toBase64(bytes) : new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes)
    } catch (cause) {
      if (signal?.aborted) throw signal.reason
      throw new HutchError("conflict", `what was read of ${path} broke off, as the file changed meanwhile or the connection was lost: read it again`, { cause })
    }
  }

  /**
   * The URL of a file's content. It has no token, so it is for clients that the server admits without one, such as a page with a session
   * of the console.
   */
  fileURL(path: string): string {
    return this.connection.address(this.path("files", "content"), { path })
  }

  /** The URL of a folder as an archive. Like {@link SandboxFiles.fileURL}, it has no token. */
  archiveURL(path: string, format: "tar" | "tar.gz" | "zip" = "tar"): string {
    return this.connection.address(this.path("files", "archive"), { path, format })
  }

  /** Makes a folder. With recursive it also makes those above it, and accepts an existing folder. */
  mkdir(path: string, options: Abortable & { recursive?: boolean } = {}): Promise<void> {
    const { signal, recursive: parents, ...query } = options
    return this.#change("mkdir", { path, parents, ...query }, signal)
  }

  /** Removes a file or, with recursive, a folder with its content. */
  deleteFile(path: string, options: Abortable & { recursive?: boolean } = {}): Promise<void> {
    const { signal, ...query } = options
    return this.json("DELETE", ["files"], { query: { path, ...query }, signal, idempotent: false })
  }

  /** Gives a file or folder another name. */
  renameFile(from: string, to: string, options: Abortable & { replace?: boolean } = {}): Promise<void> {
    return this.moveFile(from, to, options)
  }

  /** Moves a file or folder. */
  moveFile(from: string, to: string, options: Abortable & { replace?: boolean } = {}): Promise<void> {
    const { signal, ...query } = options
    return this.#change("move", { from, to, ...query }, signal)
  }

  /** Copies a file, or a folder with its content. */
  copyFile(from: string, to: string, options: Abortable & { replace?: boolean } = {}): Promise<void> {
    const { signal, ...query } = options
    return this.#change("copy", { from, to, ...query }, signal)
  }

  /** Changes permissions, which are octal, such as "0755". */
  chmod(path: string, mode: string, options: Abortable = {}): Promise<void> {
    const { signal, ...query } = options
    return this.#change("chmod", { path, mode, ...query }, signal)
  }

  #change(verb: string, query: Query, signal: AbortSignal | undefined): Promise<void> {
    return this.json("POST", ["files", verb], { query, signal })
  }

  /** Lists the content of a folder. */
  async listFiles(path = "/workspace", options: ListOptions = {}): Promise<FileInfo[]> {
    const { signal, includeHidden, ...query } = options
    const list = await this.json<{ files: FileInfo[]; error?: Problem }>("GET", ["files"], { query: { path, hidden: includeHidden, ...query }, signal })
    if (list.error) throw problemError(list.error, list.error.status)
    return list.files
  }

  /** Describes a file. If the path is a link, describes the link itself. */
  stat(path: string, options: Abortable = {}): Promise<FileInfo> {
    return this.json("GET", ["files", "stat"], { query: { path }, signal: options.signal })
  }

  /** Reports whether there is a file or folder. */
  async exists(path: string, options: Abortable = {}): Promise<boolean> {
    try {
      await this.stat(path, options)
      return true
    } catch (err) {
      if (HutchError.is(err, "not_found") && !("sandboxId" in err.data)) return false
      throw err
    }
  }

  /** Replaces a text in a file. The text must be there exactly once or, with replaceAll, at least once. */
  editFile(path: string, oldText: string, newText: string, options: Abortable & { replaceAll?: boolean } = {}): Promise<Edit> {
    const { signal, ...rest } = options
    return this.json("POST", ["files", "edit"], { json: { path, oldText, newText, ...rest }, signal })
  }

  /** Returns the lines that match a regular expression (RE2). */
  async searchFiles(path: string, pattern: string, options: Abortable & { glob?: string; includeHidden?: boolean; limit?: number } = {}): Promise<Match[]> {
    const { signal, includeHidden, ...query } = options
    const found = await this.json<{ matches: Match[]; error?: Problem }>("GET", ["files", "search"], { query: { path, pattern, hidden: includeHidden, ...query }, signal })
    if (found.error) throw problemError(found.error, found.error.status)
    return found.matches
  }

  /** Reports changes as they happen. The first event is `ready`: every later change is reported. Leave the loop to stop. */
  async *watch(path: string, options: Abortable & { recursive?: boolean } = {}): AsyncGenerator<FileEvent, void, undefined> {
    const { signal, ...query } = options
    const call = { query: { path, ...query }, accept: "text/event-stream", signal }
    let opened = false
    const open = () => {
      if (opened) return undefined // changes were missed
      opened = true
      return this.send("GET", ["files", "watch"], call)
    }
    for await (const e of follow(this.connection, { open, signal, isEnd: (e) => e.event === "end" })) {
      if (e.event === "change") yield JSON.parse(e.data) as FileEvent
    }
  }

  /** Returns an archive of a folder, as a stream. */
  async readArchive(path: string, options: Abortable & { format?: "tar" | "tar.gz" | "zip" } = {}): Promise<ReadableStream<Uint8Array>> {
    const { signal, ...query } = options
    const response = await this.send("GET", ["files", "archive"], { query: { path, ...query }, accept: "*/*", signal })
    return response.body ?? new ReadableStream<Uint8Array>({ start: (c) => { c.close() } })
  }

  /** Unpacks an archive into a folder. Its entries replace existing files. */
  writeArchive(path: string, archive: Content, options: Abortable & { format?: "tar" | "tar.gz" | "zip" } = {}): Promise<void> {
    const { signal, format = "tar", ...query } = options
    return this.json("PUT", ["files", "archive"], { query: { path, format, ...query }, content: archive, signal })
  }

  /** Clones a repository. Credentials are in memory only. */
  gitCheckout(url: string, options: GitCheckoutOptions = {}): Promise<GitRepository> {
    const { signal, targetDir, timeout, ...rest } = options
    const json = { url, ...rest, ...(targetDir === undefined ? {} : { dir: targetDir }), ...(timeout === undefined ? {} : { timeout: timeout / 1000 }) }
    return this.json("POST", ["git", "clone"], { json, signal })
  }

  /** Returns the branch and the changed files of a repository. */
  gitStatus(dir = "/workspace", options: Abortable = {}): Promise<GitStatus> {
    return this.json("GET", ["git", "status"], { query: { dir }, signal: options.signal })
  }

  /** Returns a difference, as git prints it. */
  async gitDiff(dir = "/workspace", options: Abortable & { from?: string; to?: string; staged?: boolean; path?: string[] } = {}): Promise<string> {
    const { signal, ...query } = options
    const response = await this.send("GET", ["git", "diff"], { query: { dir, ...query }, accept: "text/x-diff", signal })
    return response.text()
  }

  /** Commits the named files, or all changed ones. */
  gitCommit(message: string, options: Abortable & { dir?: string; paths?: string[]; authorName?: string; authorEmail?: string } = {}): Promise<GitRepository> {
    const { signal, ...rest } = options
    return this.json("POST", ["git", "commit"], { json: { message, ...rest }, signal })
  }
}
