CREATE TABLE chatbots (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace_name text NOT NULL,
  name text NOT NULL,
  description text NOT NULL,
  hello_message text
);

CREATE TABLE api_keys (
  hash bytea PRIMARY KEY,
  chatbot_id bigint NOT NULL REFERENCES chatbots (id)
);

CREATE TABLE chats (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  chatbot_id bigint NOT NULL REFERENCES chatbots (id),
  name text,
  user_ref text,
  create_time timestamptz(3) NOT NULL DEFAULT now()
);

CREATE INDEX chats_of_chatbot ON chats (chatbot_id, id);

CREATE TABLE entries (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  chat_id bigint NOT NULL REFERENCES chats (id),
  question text NOT NULL,
  answer text NOT NULL,
  moderation text NOT NULL DEFAULT 'none',
  flagged boolean NOT NULL DEFAULT false,
  create_time timestamptz(3) NOT NULL DEFAULT now()
);

CREATE INDEX entries_of_chat ON entries (chat_id, id);
