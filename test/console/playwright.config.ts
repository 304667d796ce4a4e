import { defineConfig } from "@playwright/test"

// console_test.go starts the server and gives its address. Tests with @runtimes in their name run on each runtime.
export default defineConfig({
  testDir: "specs",
  outputDir: process.env["CONSOLE_OUTPUT"] ?? "../../bin/console-tests",
  timeout: 90_000,
  expect: { timeout: 30_000 },
  workers: 2,
  retries: 1, // a spec that fails is run once more by itself
  forbidOnly: true,
  reporter: [["list"], ["./again.ts"]],
  use: {
    baseURL: process.env["HUTCH_CONSOLE"] ?? "http://hutch.localhost:7700",
    viewport: { width: 1280, height: 800 },
    screenshot: "only-on-failure",
    launchOptions: { executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] },
  },
})
