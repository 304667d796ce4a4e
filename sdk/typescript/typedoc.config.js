import { OptionDefaults } from "typedoc"

// src/schema.ts is generated, with tags of its own.
export default {
  entryPoints: ["src/index.ts", "src/cloudflare/index.ts"],
  out: "reference",
  excludePrivate: true,
  excludeInternal: true,
  readme: "README.md",
  blockTags: [...OptionDefaults.blockTags, "@description", "@constant"],
  intentionallyNotExported: ["Schemas"], // what the types that are exported are made of
  treatWarningsAsErrors: true,
}
