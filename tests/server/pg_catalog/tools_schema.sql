CREATE TABLE pairs (id int8 NOT NULL, part int4 NOT NULL, name text, email varchar(20), PRIMARY KEY (part, id), UNIQUE (email, id));
CREATE INDEX pairs_name ON pairs (name DESC, id);
CREATE UNIQUE INDEX pairs_lower ON pairs (lower(name), part DESC NULLS LAST);
CREATE TABLE notes (id int4 PRIMARY KEY, pair int8, part int4, after int4 REFERENCES notes, text text CHECK (length(text) > 1), FOREIGN KEY (part, pair) REFERENCES pairs (part, id) ON DELETE CASCADE);
CREATE TABLE serials (id serial PRIMARY KEY, big bigserial, n int8);
