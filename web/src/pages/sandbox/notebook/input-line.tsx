import { useState, type SyntheticEvent } from "react"
import { Button, Input, plainText } from "../../../ui"

/** Asks for the line that running code waits for. */
export function InputLine({ input: { prompt, password }, onAnswer, onEnd }: { input: { prompt: string; password: boolean }; onAnswer: (line: string) => void; onEnd: () => void }) {
  const [line, setLine] = useState("")
  const answer = (e: SyntheticEvent) => {
    e.preventDefault()
    onAnswer(line)
    setLine("")
  }
  return (
    <form className="input-line" onSubmit={answer}>
      <label>
        <span>{plainText(prompt.slice(0, 2000)).trim() || "The code waits for a line"}</span>
        <Input type={password ? "password" : "text"} value={line} autoFocus onChange={(e) => setLine(e.target.value)} />
      </label>
      <Button look="primary" type="submit">Send</Button>
      <Button look="quiet" title="The code reads the end of the file" onClick={onEnd}>End of input</Button>
    </form>
  )
}
