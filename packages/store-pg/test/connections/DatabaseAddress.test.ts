import { expect, it } from "@effect/vitest";
import { Redacted } from "effect";
import { securityOf, transportOf } from "../../src/connections/DatabaseAddress.ts";

const problemOf = (address: string) => transportOf(Redacted.make(address));
const base = "postgres://ann:secret@db.example:5432/parley";

it.each([
  base,
  "postgresql://ann@db.example/parley",
  "postgres://ann:p@ss:w[ord@db.example/parley",
  "postgres://ann:%2F%23%3F%25@[::1]/parley",
  "postgres:///parley?host=/run/postgresql&user=ann@corp",
  "postgres://ann:p@ss@/parley?host=/run/postgresql",
  "postgres://%2Frun%2Fpostgresql/parley",
  `${base}?application_name=web&options=-c%20jit%3Doff`,
])("the address %s is accepted", (address) => {
  expect(problemOf(address)).toBeTypeOf("object");
});

it.each([
  ["ssl=true", "ssl", "sslmode=require"],
  ["target_session_attrs=read-write", "target_session_attrs", "one address"],
  ["load_balance_hosts=random", "load_balance_hosts", "one address"],
  ["channel_binding=require", "channel_binding", "remove it"],
  ["passfile=/root/.pgpass", "passfile", "remove it"],
  ["connect_timeout=60", "connect_timeout", "remove it"],
  ["sslcert=/etc/client.pem", "sslcert", "remove it"],
  ["SSLMODE=require", "SSLMODE", "remove it"],
  ["sslmode=on", "sslmode", "verify-full"],
  ["host=one,two", "several hosts", "one address"],
])("the error for the parameter %s names it and says what to do", (parameter, name, advice) => {
  const problem = problemOf(`${base}?${parameter}`);
  expect(problem).toContain(name);
  expect(problem).toContain(advice);
  expect(problem).not.toContain("secret");
});

it("an address with several hosts is rejected", () => {
  for (const hosts of ["one:5432,two:5432", "one,two"]) {
    expect(problemOf(`postgres://ann:secret@${hosts}/parley`)).toContain("several hosts");
  }
  expect(problemOf("postgres://ann:a,b@one/parley")).toBeTypeOf("object");
});

it.each([
  "12/xyzzy",
  "xyzzy/xyzzy",
  "12#xyzzy",
  "12?xyzzy",
  "12?xyzzy=xyzzy",
  "xyz%zy",
  "12?a=xyzzy&host=x",
])("the unencoded password %s is recognized, and no part of it is repeated", (password) => {
  for (const before of ["", "a@b", "a@1"]) {
    const problem = problemOf(`postgres://ann:${before}${password}@db.example/parley`);
    expect(problem).toContain("percent-encode");
    expect(problem).not.toMatch(/xyz|\b12\b|ann/);
  }
});

it.each(["nonsense", "mysql://ann:secret@db.example/parley", "host=db.example dbname=parley"])(
  "%s is rejected because it is not an address",
  (address) => {
    expect(problemOf(address)).toMatch(/^is not an address such as postgres:\/\//);
  },
);

it("a plus sign stays a plus sign, and the last of two parameters with the same name wins", () => {
  const url = Redacted.make(`${base}?application_name=a+b&sslmode=require&sslmode=disable`);
  expect(transportOf(url)).toMatchObject({ applicationName: "a+b" });
  expect(securityOf(url)).toBe("plain text");
});

it("a connection over a Unix socket is never encrypted, as with libpq", () => {
  for (const host of ["?host=/run/postgresql&", "?host=%2Frun%2Fpostgresql&"]) {
    expect(securityOf(Redacted.make(`postgres:///parley${host}sslmode=verify-full`))).toBe(
      "plain text",
    );
  }
  expect(securityOf(Redacted.make("postgres://%2Frun/parley?sslmode=require"))).toBe("plain text");
});
