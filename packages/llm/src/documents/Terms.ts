/**
 * Terms: words in the normalized form that the search compares.
 */
import { Array as Arr } from "effect";

export const wordsOf = (text: string): Array<string> => text.match(/[\p{L}\p{M}\p{N}]+/gu) ?? [];

/** Common words in English and German, and words that frame questions. They are never the subject of a question. */
const stopWords = new Set(
  `a about above after again all already also always am an and any anybody anyone anything are aren as at be because
  been before being below between both but by can cannot could couldn did didn do does doesn
  doing don done during each either else ever every exactly explain few find for from further
  get gets getting give go goes going got had has have having he help her here hers hi him his
  how i if in into is isn it its just kind know let like ll lot many may me mean means might mine
  more most much must my need needs neither no nor not now of off on once one only or other our ours
  out over own please possible re really s same say shall she should show so some somebody someone
  something still such t tell than thank thanks that the their theirs them then there these they thing
  things this those through to too two under until up upon us use used using ve very want wants was way
  we were what when where whether which while who whom whose why will with without won work works
  would yes yet you your yours
  arent cant couldnt didnt doesnt dont hasnt havent hows im isnt ive shouldnt thats wasnt whats wont wouldnt youre
  able happen happens happened instead possible
  geht gehen moglich funktioniert passiert
  aber als am an auch auf aus bei bekomme bekommen benutze benutzen brauche brauchen das dem den der
  des die dies diese du ein eine einem einen einer es euch fur gibt habe hat ich ihr im in ist kann
  kannst konnen lassen lasst lauft laufen mache machen man mein meine meinen mich mir mit muss nach nehme nehmen nicht noch nutze nutzen
  alle alles beim bitte bzw damit dann dass denn diesem diesen dieser dieses doch dort eigentlich einer eines etwa ganz
  gerade hier ihre ihren immer ins irgendwie jetzt kein keine keinen mehr nur obwohl schon sehr sein seine seinen soll
  sollte sollten uber unser unsere unseren viel viele vielen wieder wollen wurde wurden einrichten einstellen oder ohne
  richte sich sie sind stelle und uns verwende verwenden vom von wann warum was welche welcher welches
  wenn wer werden wie wieso wir wird wo zu zum zur`.split(/\s+/),
);

/** Words such as "change" in "How do I change X?", where X is the subject. Without an X, the word is the subject. */
const settingWords = new Set(
  "adjust change choose configure customise customize define enable modify pick select set setup support switch turn unterstutzt".split(
    " ",
  ),
);

/**
 * Verbs in English and German. Each line lists the verbs for one act, because a passage about stopping does not answer
 * a question about starting.
 */
const verbs = `start launch starten
  stop halt quit beenden stoppe stoppen
  restart neustarten
  install installieren
  uninstall deinstallieren
  delete remove erase losche loschen entferne entfernen
  create generate erstelle erstellen anlegen
  rename umbenennen
  export exporter exportieren
  import importer importieren
  backup sichere sichern
  restore wiederherstellen
  upgrade update aktualisiere aktualisieren
  revoke sperre sperren
  reset zurucksetzen
  connect verbinde verbinden
  embed einbauen einbinden einbetten
  search suche suchen
  limit begrenze begrenzen`
  .split("\n")
  .map((line) => line.trim().split(" "));

/** Nouns in English and German. Each line lists words for the same thing. */
const nouns = `chat conversation dialogue unterhaltung unterhaltungen gesprach
  chatbot bot assistant
  user customer visitor person people benutzer nutzer kunde kunden
  image picture photo bild bilder
  error fault fehler
  key schlussel
  document doc file dokument dokumente datei dateien
  model llm modell modelle sprachmodell sprachmodelle ki
  language sprache sprachen
  german deutsch deutsche deutschen
  english englisch englische englischen
  colour color farbe farben
  greeting begrußung
  cost price kosten preis
  phone mobile handy smartphone
  computer machine rechner
  question frage fragen
  answer reply antwort antworten
  database datenbank
  homepage website webseite`
  .split("\n")
  .map((line) => line.trim().split(" "));

const greeting = /^\s*(?:hello|hi|hey|hallo|good morning|guten (?:tag|morgen))(?=\P{L}+\p{L})/iu;

/** Returns the distinct terms of a question's subject, and the terms of all its words. */
export const questionTerms = (question: string, vocabulary: ReadonlyMap<string, unknown>) => {
  const words = wordsOf(question.replace(greeting, "")).map(fold);
  const subject = words.filter((word) => !stopWords.has(word) && !/^[a-z0-9]$/.test(word));
  const object = subject.filter((word) => !settingWords.has(word));
  const read = (word: string) => correct(termOf(word), vocabulary);
  const about = (object.length === 0 ? subject : object).map(read);
  return { about: Arr.dedupe(about), words: new Set(words.map(read)) };
};

export const isCommon = (term: string): boolean => stopTerms.has(term);

export const verbsIn = (terms: Iterable<string>): ReadonlyArray<string> =>
  [...terms].filter((term) => verbTerms.has(term));

/** Returns the term, corrected to a known term if it is a misspelling of one. */
const correct = (term: string, vocabulary: ReadonlyMap<string, unknown>): string =>
  term.length < 4 || vocabulary.has(term)
    ? term
    : ([...vocabulary.keys()].find((word) => isSlip(term, word)) ?? term);

/**
 * Whether the terms have the same first letter and differ by one slip: two adjacent letters swapped or, if `a` has five
 * or more letters, one letter added, omitted or replaced.
 */
const isSlip = (a: string, b: string): boolean => {
  if (a[0] !== b[0] || b.length < 4 || Math.abs(a.length - b.length) > 1) return false;
  let at = 1;
  while (a[at] === b[at] && at < a.length) at++;
  const [x, y] = [a.slice(at), b.slice(at)];
  if (x[0] === y[1] && x[1] === y[0] && x.slice(2) === y.slice(2)) return true;
  return a.length >= 5 && ([y, y.slice(1)].includes(x.slice(1)) || x === y.slice(1));
};

export const fold = (word: string): string =>
  word
    .normalize("NFKD")
    .replace(/[\u0300-\u036f]/g, "")
    .normalize("NFC")
    .toLowerCase();

/** Folds case and accents, strips plural and verb endings by rough rules, and maps synonyms to a single term. */
export const termOf = (word: string): string => {
  const term = stemOf(fold(word));
  return canonical.get(term) ?? term;
};

const stemOf = (folded: string): string => {
  let term = folded;
  if (!/^[a-z]{4,30}$/.test(term)) return term;
  if (term.endsWith("ies")) term = `${term.slice(0, -3)}y`;
  else if (/[^aisu]s$/.test(term) && term !== "https") term = term.slice(0, -1);
  const stem = /^(.*[aeiouy].*?)(?:ing|(?<!e)ed|(?<=.{5})en)$/.exec(term)?.[1];
  if (stem !== undefined && stem.length >= 3) term = stem.replace(/([bdfgmnprt])\1$/, "$1");
  return term.length > 4 && term.endsWith("e") ? term.slice(0, -1) : term;
};

const canonical = new Map(
  [...verbs, ...nouns].flatMap(([first, ...others]) =>
    others.map((word) => [stemOf(word), stemOf(first!)] as const),
  ),
);
const verbTerms = new Set(verbs.map(([first]) => stemOf(first!)));
const stopTerms = new Set([...stopWords].map(stemOf));
