/** German translations of the widget's texts. */
export const german = {
  "A question can have at most {} characters; this one has {}.":
    "Eine Frage darf höchstens {} Zeichen haben, diese hat {}.",
  "Your question": "Ihre Frage",
  "Ask a question": "Stellen Sie eine Frage",
  Stop: "Anhalten",
  Ask: "Fragen",
  History: "Verlauf",
  "Earlier entries": "Frühere Einträge",
  "Another tab is waiting for an answer in this chat.":
    "Ein anderer Tab wartet in diesem Chat auf eine Antwort.",
  "Jump to latest": "Zum neuesten Eintrag",
  Edit: "Bearbeiten",
  "Copy answer": "Antwort kopieren",
  " in another tab": " in einem anderen Tab",
  "Waiting for the answer": "Warten auf die Antwort",
  Answering: "Antwort wird geschrieben",
  "Connection lost. Reconnecting": "Verbindung unterbrochen. Neuer Versuch läuft",
  "The server cannot answer at the moment. Trying again":
    "Der Server kann gerade nicht antworten. Neuer Versuch läuft",
  Stopping: "Wird angehalten",
  "Stopped. If an answer still arrives, it will appear here.":
    "Angehalten. Wird die Antwort doch noch fertig, erscheint sie hier.",
  "Stopped. Nothing was stored.": "Angehalten. Es wurde nichts gespeichert.",
  "There is no answer yet.": "Es gibt noch keine Antwort.",
  "Answer: {}": "Antwort: {}",
  "The server needs an API key. Enter one.": "Dieser Chat ist derzeit nicht verfügbar.",
  "The key is not valid, or no longer valid. Enter another one.":
    "Dieser Chat ist derzeit nicht verfügbar.",
  "This key does not allow that. Enter one that does.": "Das ist in diesem Chat nicht erlaubt.",
  "This key cannot be used for this user.": "Das ist in diesem Chat nicht erlaubt.",
  "Too many requests with this key.": "Zu viele Anfragen.",
  "This key's budget for today is used up.": "Dieser Chat antwortet heute nicht mehr.",
  "This chat does not exist, or no longer exists.": "Diesen Chat gibt es nicht oder nicht mehr.",
  "Could not answer. Nothing was stored.":
    "Die Antwort ist fehlgeschlagen. Es wurde nichts gespeichert.",
  "The server cannot use its database at the moment.":
    "Der Server erreicht gerade seine Datenbank nicht.",
  "The server is busy.": "Der Server ist ausgelastet.",
  "An unexpected error occurred on the server.":
    "Auf dem Server ist ein unerwarteter Fehler aufgetreten.",
  "The name is longer than 255 characters.": "Der Name hat mehr als 255 Zeichen.",
  "The user reference is longer than 60 characters.":
    "Die Benutzerreferenz hat mehr als 60 Zeichen.",
  "The server does not support this request. It may be running a different version.":
    "Dieser Chat ist derzeit nicht verfügbar.",
  "The server is not responding.": "Der Server antwortet nicht.",
  "The server, or a proxy in front of it, returned HTTP {}.":
    "Der Server oder ein Proxy davor hat mit HTTP {} geantwortet.",
  "Try again {}.": "Versuchen Sie es {} erneut.",
  "Try again": "Erneut versuchen",
  Details: "Details",
  Table: "Tabelle",
  "Copy code": "Code kopieren",
  Copied: "Kopiert",
  "Close the chat": "Chat schließen",
  "New chat": "Neuer Chat",
  "Earlier chats": "Frühere Chats",
  "Suggested questions": "Vorgeschlagene Fragen",
  "A language model answers. It can be wrong.": "Ein Sprachmodell antwortet. Es kann sich irren.",
  "Chat {}": "Chat {}",
};
