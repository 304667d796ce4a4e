import { HutchError, type Sandbox } from "hutch"
import { Store } from "../../../store"
import { join } from "./paths"

/** A file on its way into the sandbox. */
export interface Upload {
  id: number
  path: string
  size: number
  sent: number
  /** exists: there is a file of that name, and the user must choose whether it is replaced. */
  state: "waits" | "runs" | "done" | "exists" | "failed"
  error?: unknown
}

interface Job {
  file: File
  stop: AbortController
}

/** How many files are sent at a time. */
const parallel = 2

/** Uploads of one sandbox. They continue while another tab of it is open. */
export class Uploads {
  readonly list = new Store<readonly Upload[]>([])
  readonly #sandbox: Sandbox
  readonly #jobs = new Map<number, Job>()
  #next = 1

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox
  }

  /** Sends files, whose paths are relative to the folder. */
  add(folder: string, files: readonly { path: string; file: File }[]): void {
    const added = files.map(({ path, file }): Upload => {
      const id = this.#next++
      this.#jobs.set(id, { file, stop: new AbortController() })
      return { id, path: join(folder, path), size: file.size, sent: 0, state: "waits" }
    })
    this.list.set([...this.list.value, ...added])
    this.#start()
  }

  /** Sends a file in place of the existing one. */
  replace(id: number): void {
    void this.#send(id, false)
  }

  /** Stops an upload, or removes it from the list. */
  remove(id: number): void {
    this.#jobs.get(id)?.stop.abort()
    this.#jobs.delete(id)
    this.list.set(this.list.value.filter((u) => u.id !== id))
  }

  clear(): void {
    for (const { id, state } of this.list.value) if (state === "done") this.remove(id)
  }

  #start(): void {
    let free = parallel - this.list.value.filter((u) => u.state === "runs").length
    for (const { id, state } of this.list.value) if (state === "waits" && free-- > 0) void this.#send(id, true)
  }

  async #send(id: number, create: boolean): Promise<void> {
    const job = this.#jobs.get(id), upload = this.list.value.find((u) => u.id === id)
    if (!job || !upload) return
    this.#change(id, { state: "runs", sent: 0 })
    try {
      const onProgress = (sent: number) => this.#change(id, { sent })
      await this.#sandbox.writeFile(upload.path, job.file, { create, parents: true, signal: job.stop.signal, onProgress })
      this.#change(id, { state: "done", sent: upload.size })
      this.#jobs.delete(id)
    } catch (error) {
      this.#change(id, create && HutchError.is(error, "conflict") ? { state: "exists" } : { state: "failed", error })
    }
    this.#start()
  }

  #change(id: number, change: Partial<Upload>): void {
    this.list.set(this.list.value.map((u) => (u.id === id ? { ...u, ...change } : u)))
  }
}

const all = new Map<string, Uploads>()

export function uploadsOf(sandbox: Sandbox): Uploads {
  let uploads = all.get(sandbox.id)
  if (!uploads) all.set(sandbox.id, uploads = new Uploads(sandbox))
  return uploads
}

/** The files that were dropped, also those in folders. */
export async function dropped(data: DataTransfer): Promise<{ path: string; file: File }[]> {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null)
  if (entries.length === 0) return [...data.files].map((file) => ({ path: file.name, file }))
  const files: { path: string; file: File }[] = []
  for (const entry of entries) await collect(entry, "", files)
  return files
}

async function collect(entry: FileSystemEntry, folder: string, files: { path: string; file: File }[]): Promise<void> {
  const path = folder + entry.name
  if (isFile(entry)) {
    files.push({ path, file: await new Promise<File>((resolve, reject) => entry.file(resolve, reject)) })
  } else if (isFolder(entry)) {
    const reader = entry.createReader()
    for (;;) {
      const batch = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject))
      if (batch.length === 0) return
      for (const child of batch) await collect(child, `${path}/`, files)
    }
  }
}

const isFile = (entry: FileSystemEntry): entry is FileSystemFileEntry => entry.isFile
const isFolder = (entry: FileSystemEntry): entry is FileSystemDirectoryEntry => entry.isDirectory
