/* tests/cudaemu/lexer.cc - PTX as words. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "lexer.h"
#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace emu
{
namespace
{
bool in_name(char c)
{
  return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.' || c == '%';
}

/* shared::cta and L2::128B are one word; `label:` is two. */
bool joins(const std::string &x, size_t p, size_t begin)
{
  if (in_name(x[p])) return true;
  if (x[p] != ':') return false;
  if (p > begin && x[p - 1] == ':') return true;
  return p + 2 < x.size() && x[p + 1] == ':' && isalnum((unsigned char)x[p + 2]);
}
} // namespace

size_t Lexer::skip_blank(const std::string &x, size_t p, int &line) const
{
  for (;;) {
    if (p < x.size() && isspace((unsigned char)x[p])) {
      line += x[p++] == '\n';
    } else if (!x.compare(p, 2, "//")) {
      p = std::min(x.find('\n', p), x.size());
    } else if (!x.compare(p, 2, "/*")) {
      const size_t end = std::min(x.find("*/", p + 2), x.size() - 2) + 2;
      line += (int)std::count(x.begin() + (long)p, x.begin() + (long)end, '\n');
      p = end;
    } else {
      return p;
    }
  }
}

Lexer::Lexer(const std::string &x)
{
  int line = 1;
  for (size_t p = 0; (p = skip_blank(x, p, line)) < x.size();) {
    size_t q = p + 1;
    if (x[p] == '"') {
      q = std::min(x.find('"', q), x.size() - 1) + 1;
    } else if (in_name(x[p])) {
      while (q < x.size() && joins(x, q, p)) q++;
    }
    words.push_back({x.substr(p, q - p), line});
    p = q;
  }
  words.push_back({"", line});
}

const std::string &Lexer::peek(size_t ahead) const
{
  return words[std::min(at + ahead, words.size() - 1)].text;
}

std::string Lexer::next()
{
  const std::string &word = words[at].text;
  if (at < words.size() - 1) at++;
  return word;
}

bool Lexer::accept(const char *word)
{
  if (peek() != word) return false;
  at++;
  return true;
}

void Lexer::expect(const char *word)
{
  if (accept(word)) return;
  throw std::runtime_error("PTX line " + std::to_string(words[at].line) + ": '" + peek() + "', want '" + word + "'");
}

void Lexer::skip_past(const char *word)
{
  while (peek() != word && !peek().empty()) at++;
  accept(word);
}
} // namespace emu
