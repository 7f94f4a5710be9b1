/**
 * Every code in the contract, listed once. A number never changes its meaning: a code that is no longer needed stays in
 * the list, unused.
 */

/** General exceptions, keyed by message, with their status, code and meaning. */
export const generalCodes = {
  INVALID_PATH: { status: 404, code: 400001, means: "No endpoint matches this method and path." },
  MALFORMED_REQUEST: { status: 400, code: 400002, means: "The request is not valid HTTP/1.1." },
  CONTENT_TYPE_NOT_JSON: {
    status: 400,
    code: 400003,
    means: "The content type of a POST or PATCH must be application/json.",
  },
  BODY_NOT_JSON: { status: 400, code: 400004, means: "The body is not valid JSON in UTF-8." },
  BODY_TOO_LARGE: {
    status: 400,
    code: 400005,
    means: "The body is larger than the endpoint accepts, usually 64 KiB.",
  },
  BODY_INCOMPLETE: {
    status: 400,
    code: 400006,
    means: "The request ended before its body was complete.",
  },
  HEADERS_TOO_LARGE: { status: 400, code: 400007, means: "The headers are larger than 32 KiB." },
  EXPECTATION_NOT_MET: {
    status: 400,
    code: 400008,
    means: "The only supported value of the Expect header is 100-continue.",
  },
  REQUEST_TIMEOUT: { status: 400, code: 400009, means: "The request did not arrive in time." },
  METHOD_NOT_SUPPORTED: {
    status: 400,
    code: 400010,
    means: "CONNECT and protocol upgrades are not supported.",
  },
  API_KEY_NOT_PRESENT: { status: 401, code: 401001, means: "The x-api-key header is missing." },
  API_KEY_NOT_VALID: {
    status: 401,
    code: 401002,
    means: "The API key or visitor token is not valid.",
  },
  SCOPE_NOT_GRANTED: {
    status: 403,
    code: 403001,
    means: "The API key or visitor token does not have the required scope.",
  },
  RATE_EXCEEDED: {
    status: 403,
    code: 403002,
    means:
      "The API key or the visitor has exceeded a rate limit; Retry-After says how many seconds to wait.",
  },
  BUDGET_SPENT: {
    status: 403,
    code: 403004,
    means: "The API key has spent its daily budget; Retry-After says how many seconds to wait.",
  },
  USER_REF_NOT_GRANTED: {
    status: 403,
    code: 403003,
    means: "A visitor token can create chats only with the visitor's own userRef.",
  },
  // The contract spells the message this way.
  CHAT_DOES_NOT_EXISTS: {
    status: 404,
    code: 404011,
    means: "The chatbot or the visitor has no such chat.",
  },
  ENTRY_DOES_NOT_EXIST: { status: 404, code: 404012, means: "The chat has no such entry." },
  ASK_DOES_NOT_EXIST: {
    status: 404,
    code: 404013,
    means: "No ask with this Idempotency-Key is in progress, stopped or answered.",
  },
  INTERNAL_ERROR: {
    status: 500,
    code: 500001,
    means: "An unexpected error occurred; x-request-id identifies its log line.",
  },
  ANSWER_UNAVAILABLE: {
    status: 500,
    code: 500002,
    means: "The question could not be answered; nothing was stored.",
  },
  STORAGE_UNAVAILABLE: {
    status: 500,
    code: 500003,
    means: "The store is unavailable; Retry-After says how many seconds to wait.",
  },
  SERVICE_OVERLOADED: {
    status: 500,
    code: 500004,
    means: "The server is overloaded; Retry-After says how many seconds to wait.",
  },
  ANSWER_STOPPED: {
    status: 500,
    code: 500005,
    means: "A client has stopped the ask; nothing was stored. A retry does not help.",
  },
} as const;

/** The message of a general exception. */
export type GeneralMessage = keyof typeof generalCodes;

/** The codes of validation errors, keyed by message: `<DTO>_<FIELD>_<PROBLEM>`. */
export const validationCodes = {
  CREATE_CHAT_DTO_BODY_NOT_OBJECT: 4221001,
  CREATE_CHAT_DTO_NAME_NOT_STRING: 4221002,
  CREATE_CHAT_DTO_NAME_TOO_LONG: 4221003,
  CREATE_CHAT_DTO_NAME_NOT_STORABLE: 4221004,
  CREATE_CHAT_DTO_USER_REF_NOT_STRING: 4221005,
  CREATE_CHAT_DTO_USER_REF_TOO_LONG: 4221006,
  CREATE_CHAT_DTO_USER_REF_NOT_STORABLE: 4221007,
  CREATE_CHAT_DTO_IDEMPOTENCY_KEY_NOT_PRINTABLE: 4221008,
  CREATE_CHAT_DTO_IDEMPOTENCY_KEY_REUSED: 4221009,

  ASK_DTO_BODY_NOT_OBJECT: 4222050,
  ASK_DTO_CHAT_ID_NOT_INTEGER: 4222051,
  ASK_DTO_IDEMPOTENCY_KEY_NOT_PRINTABLE: 4222052,
  ASK_DTO_IDEMPOTENCY_KEY_REUSED: 4222053,
  ASK_DTO_QUERY_NOT_STRING: 4222054,
  ASK_DTO_QUERY_NOT_PRESENT: 4222055,
  ASK_DTO_QUERY_BLANK: 4222056,
  ASK_DTO_QUERY_TOO_LONG: 4222057,
  ASK_DTO_QUERY_NOT_STORABLE: 4222058,
  ASK_DTO_ON_DISCONNECT_NOT_CANCEL_OR_FINISH: 4222059,
  ASK_DTO_INCLUDE_REPEATED: 4222060,
  ASK_DTO_INCLUDE_NOT_A_FIELD: 4222061,

  CHATS_DTO_SEARCH_REPEATED: 4223001,
  CHATS_DTO_SEARCH_NOT_STORABLE: 4223002,
  CHATS_DTO_USER_REF_REPEATED: 4223003,
  CHATS_DTO_USER_REF_NOT_STORABLE: 4223004,
  CHATS_DTO_LIMIT_REPEATED: 4223005,
  CHATS_DTO_LIMIT_NOT_INTEGER: 4223006,
  CHATS_DTO_LIMIT_OUT_OF_RANGE: 4223007,
  CHATS_DTO_PAGE_REPEATED: 4223008,
  CHATS_DTO_PAGE_NOT_INTEGER: 4223009,
  CHATS_DTO_PAGE_OUT_OF_RANGE: 4223010,
  CHATS_DTO_ID_REPEATED: 4223011,
  CHATS_DTO_ID_NOT_INTEGER: 4223012,
  CHATS_DTO_ORDER_BY_NOT_A_FIELD: 4223013,
  CHATS_DTO_ORDER_BY_REPEATED: 4223014,
  CHATS_DTO_DESC_NOT_BOOLEAN: 4223015,
  CHATS_DTO_DESC_NOT_ONE_PER_FIELD: 4223016,
  CHATS_DTO_INCLUDE_REPEATED: 4223017,
  CHATS_DTO_INCLUDE_NOT_A_FIELD: 4223018,

  HISTORY_DTO_LIMIT_REPEATED: 4224005,
  HISTORY_DTO_LIMIT_NOT_INTEGER: 4224006,
  HISTORY_DTO_LIMIT_OUT_OF_RANGE: 4224007,
  HISTORY_DTO_PAGE_REPEATED: 4224008,
  HISTORY_DTO_PAGE_NOT_INTEGER: 4224009,
  HISTORY_DTO_PAGE_OUT_OF_RANGE: 4224010,
  HISTORY_DTO_ID_REPEATED: 4224011,
  HISTORY_DTO_ID_NOT_INTEGER: 4224012,
  HISTORY_DTO_ORDER_BY_NOT_A_FIELD: 4224013,
  HISTORY_DTO_ORDER_BY_REPEATED: 4224014,
  HISTORY_DTO_DESC_NOT_BOOLEAN: 4224015,
  HISTORY_DTO_DESC_NOT_ONE_PER_FIELD: 4224016,
  HISTORY_DTO_INCLUDE_REPEATED: 4224017,
  HISTORY_DTO_INCLUDE_NOT_A_FIELD: 4224018,
  HISTORY_DTO_AFTER_REPEATED: 4224019,
  HISTORY_DTO_AFTER_NOT_INTEGER: 4224020,

  CHANGE_CHAT_DTO_BODY_NOT_OBJECT: 4225001,
  CHANGE_CHAT_DTO_NAME_NOT_STRING: 4225002,
  CHANGE_CHAT_DTO_NAME_TOO_LONG: 4225003,
  CHANGE_CHAT_DTO_NAME_NOT_STORABLE: 4225004,
  CHANGE_CHAT_DTO_INCLUDE_REPEATED: 4225005,
  CHANGE_CHAT_DTO_INCLUDE_NOT_A_FIELD: 4225006,

  CHANGE_ENTRY_DTO_BODY_NOT_OBJECT: 4226001,
  CHANGE_ENTRY_DTO_RATING_NOT_GOOD_OR_BAD: 4226002,
  CHANGE_ENTRY_DTO_COMMENT_NOT_STRING: 4226003,
  CHANGE_ENTRY_DTO_COMMENT_TOO_LONG: 4226004,
  CHANGE_ENTRY_DTO_COMMENT_NOT_STORABLE: 4226005,
  CHANGE_ENTRY_DTO_INCLUDE_REPEATED: 4226006,
  CHANGE_ENTRY_DTO_INCLUDE_NOT_A_FIELD: 4226007,

  POST_ENTRY_DTO_BODY_NOT_OBJECT: 4227001,
  POST_ENTRY_DTO_TEXT_NOT_STRING: 4227002,
  POST_ENTRY_DTO_TEXT_NOT_PRESENT: 4227003,
  POST_ENTRY_DTO_TEXT_BLANK: 4227004,
  POST_ENTRY_DTO_TEXT_TOO_LONG: 4227005,
  POST_ENTRY_DTO_TEXT_NOT_STORABLE: 4227006,
  POST_ENTRY_DTO_METADATA_NOT_OBJECT: 4227007,
  POST_ENTRY_DTO_METADATA_NOT_STORABLE: 4227008,
  POST_ENTRY_DTO_METADATA_TOO_LARGE: 4227009,
  POST_ENTRY_DTO_IDEMPOTENCY_KEY_NOT_PRINTABLE: 4227010,
  POST_ENTRY_DTO_IDEMPOTENCY_KEY_REUSED: 4227011,
  POST_ENTRY_DTO_INCLUDE_REPEATED: 4227012,
  POST_ENTRY_DTO_INCLUDE_NOT_A_FIELD: 4227013,
  POST_ENTRY_DTO_METADATA_AUTHOR_INVALID: 4227014,

  STOP_DTO_IDEMPOTENCY_KEY_NOT_PRESENT: 4228001,
  STOP_DTO_IDEMPOTENCY_KEY_NOT_PRINTABLE: 4228002,
  STOP_DTO_INCLUDE_REPEATED: 4228003,
  STOP_DTO_INCLUDE_NOT_A_FIELD: 4228004,
} as const;

export type ValidationMessage = keyof typeof validationCodes;
