/* tests/cudaemu/lexer.h - PTX as words. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_LEXER_H
#define EMU_LEXER_H

#include <string>
#include <vector>

namespace emu
{
class Lexer
{
public:
  explicit Lexer(const std::string &text);
  const std::string &peek(size_t ahead = 0) const;
  std::string next();
  bool accept(const char *word);
  void expect(const char *word);
  void skip_past(const char *word);
  int number()
  {
    return atoi(next().c_str());
  }

private:
  struct Word {
    std::string text;
    int line;
  };
  std::vector<Word> words; /* the last is "" */
  size_t at = 0;

  size_t skip_blank(const std::string &text, size_t p, int &line) const;
};
} // namespace emu

#endif
