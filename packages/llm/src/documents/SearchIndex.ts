/**
 * A full-text index: BM25 over passages in any language, without a list of words. Own code, because MiniSearch takes 32 ms
 * of CPU for a question about 5 MB of documents (this index 0.2 ms) and 220 MB for 50 MB.
 */
import type { Passage } from "./Passage.ts";

/** Bits of a posting that tell whether the word is in a heading above the passage, or in the document's title. */
const [inHeading, inTitle] = [16, 32];
/** How much a title or heading with the word counts; a text with the word many times over counts 2.2. */
const headScore = 1.5;
/** The weight of words that differ from the question's word by one slip or, in proportion, in their endings. */
const likeWeight = 0.5;
/** What a passage gains from its document: parts of the scores of its first and of its best other passage. */
const [firstPart, otherPart] = [0.5, 0.5];
const maxResults = 50;
/** The most passages that one question looks at; its rarest words come first. */
const maxVisits = 3_000;

/** Words with fewer letters count less, because most of them say nothing about the topic: "how", "ich", "les". */
const topicLength = 5;

/** Scripts without spaces between words, and Korean with its particles: pairs of characters stand for words. */
const spaceless =
  /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+/g;

/** Returns the words of a text without case and accents. */
export const wordsOf = (text: string): ReadonlyArray<string> => {
  const isAscii = !/[^\0-\x7f]/.test(text);
  const folded = isAscii
    ? text.toLowerCase()
    : text
        .normalize("NFKD")
        .replace(/[\u0300-\u036f]/g, "")
        .normalize("NFC")
        // German "ß" has no lower case but becomes "SS" in upper case.
        .toUpperCase()
        .toLowerCase()
        .replace(spaceless, (run) =>
          run.length === 1
            ? ` ${run} `
            : ` ${Array.from({ length: run.length - 1 }, (_, at) => run.slice(at, at + 2)).join(" ")} `,
        );
  return folded.match(isAscii ? /[a-z0-9]+/g : /[\p{L}\p{M}\p{N}]+/gu) ?? [];
};

export class SearchIndex {
  /** For each word, the passages with it, as `passage * 64 + fields + count`. A count is at most 15. */
  private readonly postings = new Map<string, Array<number>>();
  /** The words by their first three letters. */
  private readonly byStart = new Map<string, Array<string>>();
  private readonly lengths: Array<number> = [];
  /** For each passage, the first one of its document. */
  private readonly firsts: Array<number> = [];
  private lastSource = "";
  private totalLength = 0;
  /** Scratch space of a search, one number for each passage; all are 0 between searches. */
  private scores = new Float32Array(0);
  private shares = this.scores;
  private counts = this.scores;
  private heads = this.scores;

  /** Adds a passage; the passages of a document follow each other. */
  add({ headings, source, text, title }: Passage): void {
    const id = this.lengths.length;
    const words = wordsOf(text);
    this.firsts.push(id > 0 && source === this.lastSource ? this.firsts[id - 1]! : id);
    this.lastSource = source;
    this.lengths.push(words.length);
    this.totalLength += words.length;
    for (const word of words) this.count(word, id, 1);
    for (const word of wordsOf(headings.join("\n"))) this.count(word, id, inHeading);
    for (const word of wordsOf(title)) this.count(word, id, inTitle);
  }

  private count(word: string, id: number, part: number): void {
    const list = this.postings.get(word);
    if (list === undefined) {
      this.postings.set(word, [id * 64 + part]);
      const start = word.slice(0, 3);
      const words = this.byStart.get(start);
      if (words === undefined) this.byStart.set(start, [word]);
      else words.push(word);
      return;
    }
    const last = list[list.length - 1]!;
    if (last >> 6 !== id) list.push(id * 64 + part);
    else if (part > 1) list[list.length - 1] = last | part;
    else if ((last & 15) < 15) list[list.length - 1] = last + 1;
  }

  /** Returns the words in the index that a word of a question stands for, with their weights. */
  private variantsOf(word: string): ReadonlyMap<string, number> {
    const variants = new Map<string, number>();
    for (const other of this.byStart.get(word.slice(0, 3)) ?? []) {
      let same = 0;
      while (same < word.length && word[same] === other[same]) same++;
      const likeness = (2 * same) / (word.length + other.length);
      // "key" is like "keys", but not like "keyboard".
      if (same >= (likeness > 0.8 ? 3 : 4) && likeness >= 0.55)
        variants.set(other, likeWeight * likeness);
    }
    if (this.postings.has(word)) variants.set(word, 1);
    else if (word.length >= 4) {
      for (const [start, words] of this.byStart) {
        if (start[0] !== word[0]) continue;
        for (const other of words) if (isSlip(word, other)) variants.set(other, likeWeight);
      }
    }
    return variants;
  }

  /** Returns the numbers of up to 50 passages with any of the question's words, in the order of `add`, best first. */
  search(question: string): ReadonlyArray<{ readonly id: number; readonly score: number }> {
    const size = this.lengths.length;
    const rarityOf = (count: number) => Math.log(1 + (size + 1) / (count + 1));
    const capitals = new Set(wordsOf((question.match(/[\p{Lu}\p{N}]{2,}/gu) ?? []).join(" ")));
    const lengthFactorOf = (word: string) =>
      // Abbreviations, numbers and scripts without capitals.
      capitals.has(word) || word === word.toUpperCase()
        ? 1
        : Math.min(1, word.length / topicLength);
    const terms = [...new Set(wordsOf(question).slice(0, 200))].map((word) => {
      const variants = [...this.variantsOf(word)].map(([variant, weight]) => ({
        list: this.postings.get(variant)!,
        weight,
      }));
      const count = variants.reduce((sum, { list, weight }) => sum + weight * list.length, 0);
      const visits = variants.reduce((sum, { list }) => sum + list.length, 0);
      const rarity = lengthFactorOf(word) * rarityOf(Math.min(count, size));
      return { variants, visits, rarity };
    });
    terms.sort((a, b) => b.rarity - a.rarity);
    if (this.scores.length < size) {
      for (const name of ["scores", "shares", "counts", "heads"] as const)
        this[name] = new Float32Array(size);
    }
    const { counts, firsts, heads, lengths, scores, shares } = this;
    const matches: Array<number> = [];
    const average = this.totalLength / size;
    let room = maxVisits;
    for (const { rarity, variants, visits } of terms) {
      if ((room -= visits) < 0 && matches.length > 0) break;
      const touched: Array<number> = [];
      for (const { list, weight } of variants) {
        for (let at = 0; at < list.length; at++) {
          const posting = list[at]!;
          const id = posting >> 6;
          if (counts[id] === 0 && heads[id] === 0) touched.push(id);
          counts[id]! += (posting & 15) * weight;
          if (posting < id * 64 + inHeading) continue;
          const fields = (posting & inHeading ? 1 : 0) + (posting & inTitle ? 1 : 0);
          const head = weight * fields * headScore;
          if (head > heads[id]!) heads[id] = head;
        }
      }
      for (const id of touched) {
        const count = counts[id]!;
        if (scores[id] === 0) matches.push(id);
        const norm = 1.2 * (0.3 + (0.7 * lengths[id]!) / average);
        scores[id]! += rarity ** 2 * ((count * 2.2) / (count + norm) + heads[id]!);
        shares[id]! += rarity * Math.min(1, count + heads[id]!);
        heads[id] = counts[id] = 0;
      }
    }
    // From here on, counts and heads hold the scores of each document's best and next best passage.
    for (const id of matches) {
      scores[id]! *= Math.sqrt(shares[id]!);
      const [score, first] = [scores[id]!, firsts[id]!];
      if (score > counts[first]!) [counts[first], heads[first]] = [score, counts[first]!];
      else if (score > heads[first]!) heads[first] = score;
    }
    // Sorting all passages would take longer than finding them.
    const best: Array<{ readonly id: number; readonly score: number }> = [];
    for (const id of matches) {
      const [own, first] = [scores[id]!, firsts[id]!];
      const other = own === counts[first] ? heads[first]! : counts[first]!;
      const score = own + firstPart * scores[first]! + otherPart * other;
      if (best.length === maxResults && score <= best[maxResults - 1]!.score) continue;
      let at = best.length;
      while (at > 0 && best[at - 1]!.score < score) at--;
      best.splice(at, 0, { id, score });
      if (best.length > maxResults) best.pop();
    }
    for (const id of matches)
      scores[id] = shares[id] = counts[firsts[id]!] = heads[firsts[id]!] = 0;
    return best;
  }
}

/**
 * Whether the words have the same first letter and differ by one slip: two adjacent letters swapped or, if `a` has five
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
