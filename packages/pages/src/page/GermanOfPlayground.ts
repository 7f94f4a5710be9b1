/** German translations of the texts that only the playground has. */
export const germanOfPlayground = {
  "The server needs an API key. Enter one.":
    "Der Server verlangt einen API-Schlüssel. Geben Sie einen ein.",
  "The key is not valid, or no longer valid. Enter another one.":
    "Der Schlüssel gilt nicht oder nicht mehr. Geben Sie einen anderen ein.",
  "This key does not allow that. Enter one that does.":
    "Dieser Schlüssel erlaubt das nicht. Geben Sie einen ein, der es erlaubt.",
  "This key cannot be used for this user.": "Dieser Schlüssel gilt nicht für diesen Benutzer.",
  "Too many requests with this key.": "Zu viele Anfragen mit diesem Schlüssel.",
  "This key's daily budget is used up.": "Das Tagesbudget dieses Schlüssels ist aufgebraucht.",
  "The server does not support this request. It may be running a different version.":
    "Der Server kennt diese Anfrage nicht. Vielleicht hat er eine andere Version.",
  "Enter another key": "Anderen Schlüssel eingeben",
  Playground: "Spielplatz",
  Guide: "Handbuch",
  API: "API",
  "Meet your chatbot": "Lernen Sie Ihren Chatbot kennen",
  "Read its chats, ask it questions, and see each request. An API key gives access to one chatbot.":
    "Lesen Sie seine Chats, stellen Sie ihm Fragen, und sehen Sie jede Anfrage. Ein API-Schlüssel öffnet einen Chatbot.",
  "API key or visitor token": "API-Schlüssel oder Besucher-Token",
  "A key has no spaces or accented letters": "Ein Schlüssel hat keine Leerzeichen oder Umlaute",
  Open: "Öffnen",
  "The server prints a key, or the path of the key file, when it first starts, and {} creates another. The key stays in this tab until you close it. To see what a visitor sees, enter a visitor token from {}.":
    "Der Server gibt beim ersten Start einen Schlüssel oder den Pfad der Schlüsseldatei aus, und {} erzeugt weitere. Der Schlüssel bleibt in diesem Tab, bis Sie ihn schließen. Um zu sehen, was ein Besucher sieht, geben Sie ein Besucher-Token von {} ein.",
  Chats: "Chats",
  Chat: "Chat",
  "Visitor {}": "Besucher {}",
  "Forget key": "Schlüssel vergessen",
  "The chatbot answers with quotes from its documents.":
    "Der Chatbot antwortet mit Zitaten aus seinen Dokumenten.",
  "Connect a model →": "Ein Modell verbinden →",
  "The answers interface is at {}. Add {} to {} and restart the server, so that this page can ask questions.":
    "Die Antwort-Schnittstelle liegt unter {}. Fügen Sie {} zu {} hinzu, und starten Sie den Server neu, damit diese Seite Fragen stellen kann.",
  "Ask {}": "Fragen Sie {}",
  "Create a chat with a name or a user reference":
    "Einen Chat mit Namen oder Benutzerreferenz anlegen",
  Name: "Name",
  "User reference: your own id for the user": "Benutzerreferenz: Ihre eigene Kennung des Benutzers",
  "Create chat": "Chat anlegen",
  "Entry {}": "Eintrag {}",
  "Moderation: {}": "Moderation: {}",
  Flagged: "Beanstandet",
  "Flagged: {}": "Beanstandet: {}",
  "Not flagged": "Nicht beanstandet",
  "Search chats": "Chats suchen",
  "Search by name, first question or exact user reference ({})":
    "Nach Name, erster Frage oder genauer Benutzerreferenz suchen ({})",
  "No chats yet.": "Noch keine Chats.",
  "No chats match that name or user reference.":
    "Kein Chat passt zu diesem Namen oder dieser Benutzerreferenz.",
  "Newer chats": "Neuere Chats",
  "Older chats": "Ältere Chats",
  Today: "Heute",
  Yesterday: "Gestern",
  "{}–{} of {}": "{}–{} von {}",
  "Search in this chat": "In diesem Chat suchen",
  "All chats": "Alle Chats",
  "1 entry": "1 Eintrag",
  "{} entries": "{} Einträge",
  Rename: "Umbenennen",
  "Save as Markdown": "Als Markdown speichern",
  "The chat is deleted.": "Der Chat ist gelöscht.",
  "Delete this chat?": "Diesen Chat löschen?",
  "“{}” is erased from the server for everyone who can read it: its name and user reference, its {} with sources, ratings and comments. An answer in progress is lost. This cannot be undone.":
    "„{}“ wird auf dem Server für alle gelöscht, die ihn lesen können: Name und Benutzerreferenz, {} mit Quellen, Bewertungen und Kommentaren. Eine laufende Antwort geht verloren. Das lässt sich nicht rückgängig machen.",
  "Delete chat": "Chat löschen",
  Requests: "Anfragen",
  Close: "Schließen",
  "Newest first. The API key is not shown.":
    "Die neuesten zuerst. Der API-Schlüssel wird nicht gezeigt.",
  "Request id {}": "Kennung der Anfrage {}",
};
