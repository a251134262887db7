/* tests/cudaemu/ptx.h - a module of PTX, as parsed. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_PTX_H
#define EMU_PTX_H

#include "numbers.h"
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace emu
{
struct Arg {
  enum Kind { reg, immediate, symbol, memory, vector, pair } kind = immediate;
  std::string name;     /* reg, symbol, base of memory ("": absolute) */
  bool negated = false; /* !p */
  u64 value = 0;        /* immediate, or offset of memory and symbol */
  bool is_f32 = false, is_f64 = false;
  std::vector<Arg> parts; /* vector, pair; coordinates of a tensor */
};

struct Statement {
  std::string label; /* not empty: a label, and nothing else but the targets of a .branchtargets */
  std::string op, guard;
  bool guard_negated = false;
  std::vector<Arg> args;
  int file = 0, line = 0, scope = 0;
};

struct Variable {
  std::string name, space;
  u32 align = 1;
  u64 size = 0;
  std::vector<u8> init;
  std::vector<std::pair<u64, std::string>> addresses; /* offset in init, of which symbol */
  bool external = false;
};

/* Names are local to their { }: inline assembly repeats labels and registers. Scope 0 is the whole body. */
struct Scope {
  int parent = -1;
  std::unordered_map<std::string, int> registers; /* bytes; 1: a predicate */
};

struct Function {
  std::string name;
  bool entry = false;
  std::vector<Variable> params, results, locals; /* locals: .shared, .local and .param of the body */
  std::vector<Scope> scopes;
  std::vector<Statement> body;
  int max_threads[3] = {0, 0, 0};
  bool exact_threads = false; /* .reqntid */
};

struct Module {
  std::string target;
  std::vector<Variable> variables;
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<int, std::string> files;
  std::map<std::string, u64> address; /* of the variables placed in device memory */
};

/* Throws std::runtime_error, naming the line. */
std::unique_ptr<Module> parse_ptx(const std::string &text);

/* "add.f32 %f1, %f2, 0" again, for messages. */
std::string to_text(const Statement &s);
} // namespace emu

#endif
