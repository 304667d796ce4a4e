import { defineConfig } from "@playwright/test"

// Where figures.spec.ts starts its server, and with which token; ../fixture.ts reads them too.
process.env["HUTCH_URL"] = "http://127.0.0.1:7790"
process.env["HUTCH_CONSOLE"] = "http://hutch.localhost:7790"
process.env["HUTCH_TOKEN"] = "the-token-of-the-figures"

export default defineConfig({
  testDir: ".",
  outputDir: "../../../bin/console-figures",
  timeout: 600_000,
  expect: { timeout: 60_000 },
  workers: 1,
  forbidOnly: true,
  reporter: [["line"]],
  use: {
    baseURL: process.env["HUTCH_CONSOLE"],
    viewport: { width: 1280, height: 800 },
    launchOptions: { executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] },
  },
})
