/* tests/cudaemu/decode.h - statements of PTX -> instructions with handlers. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EMU_DECODE_H
#define EMU_DECODE_H

#include "machine.h"
#include <set>

namespace emu
{
enum class Type { u8, s8, u16, s16, u32, s32, u64, s64, f16, bf16, f32, f64, f16x2, bf16x2, none };
Type type_of(const std::string &word);
int bytes_of(Type t);
bool is_float(Type t); /* of one number */
bool is_half(Type t);  /* 16 bits a number, single or packed */
bool is_bf16(Type t);
bool is_packed(Type t);
bool is_signed(Type t);

enum class Special : int {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  lanemask_eq,
  lanemask_lt,
  lanemask_le,
  lanemask_gt,
  lanemask_ge,
  dynamic_smem_size,
  total_smem_size,
  cluster_ctarank,
  cluster_nctarank,
  gridid,
  clock, /* from here on read anew by each instruction */
  clock_hi,
  clock64,
  globaltimer,
  none,
  dynamic_base, /* not PTX: where dynamic shared memory begins, in 4 bytes and in 8 */
  dynamic_base64
};
Special special_of(const std::string &name);

struct Symbol {
  u64 value;
  Space space;
  bool dynamic_shared; /* known only at launch */
};

/* A function that is being decoded: inlined, where another calls it. */
struct Frame {
  const Function *function;
  Frame *caller;
  std::vector<std::unordered_map<std::string, Operand>> registers; /* by scope */
  std::unordered_map<std::string, u32> local;                      /* .local and .param: offset in local memory */
  std::vector<std::unordered_map<std::string, u32>> labels;        /* by scope: index in the code */
  std::vector<std::unordered_map<std::string, const Statement *>> tables;
  struct Jump {
    size_t at;
    std::string label;
    int scope;
    bool table;
  };
  std::vector<Jump> jumps;
  std::vector<size_t> returns;

  Frame(const Function &f, Frame *from)
      : function(&f), caller(from), registers(f.scopes.size()), labels(f.scopes.size()), tables(f.scopes.size())
  {
  }
};

/* Thrown by decoders: the instruction becomes one that faults when it is executed. */
struct Unsupported {
  std::string why;
};

class Decoder
{
public:
  Decoder(Kernel &kernel, Module &mod) : k(kernel), module(mod) {}
  void function(Frame &frame);

  /* The statement at hand. */
  const Statement *s = nullptr;
  Frame *frame = nullptr;
  std::vector<std::string> words; /* of the op: "ld", "global", "f32" */

  bool has(const char *word) const;
  Type type() const; /* the last type of the op */
  std::vector<Type> types() const;
  Space space() const; /* global, where none is named: generic */
  u8 flags() const;    /* .ftz .sat .relu */
  const Arg &arg(size_t n) const;
  Operand operand(const Arg &a, int size);
  Operand predicate(const Arg &a)
  {
    return operand(a, 1);
  }
  void operands(std::vector<Operand> &to, const Arg &a, int size); /* of a vector, or of one */
  /* [base + offset]; the space changes where the name of a variable says so. */
  Operand address(const Arg &a, s64 &offset, Space &space);
  Operand constant(u64 value, int size);
  Operand carry(); /* CC of add.cc */
  u32 local_offset(const Arg &a);
  void emit(const Inst &i);
  size_t here() const
  {
    return k.code.size();
  }
  void jump(const std::string &label, bool table);
  void leave(); /* ret: the end of an inlined function */
  void call(const Inst &guard, const Arg &name, const std::vector<Arg> &args, const std::vector<Arg> &results);
  void set_guard(Inst &i);

private:
  Kernel &k;
  Module &module;
  std::map<std::pair<u64, int>, u32> constant_at;
  std::map<std::string, u32> shared_at;
  std::map<Special, u32> special_at;
  Operand carry_flag;
  int depth = 0;
  std::set<std::string> reported; /* unsupported ops: said once a kernel */

  u32 take_registers(u32 bytes, u32 align);
  Operand special(Special which);
  Operand reg(const std::string &name);
  bool is_declared(const std::string &name) const;
  bool find_symbol(const std::string &name, Symbol &symbol);
  Operand symbol_operand(const Arg &a, int size);
  void place_shared(const Variable &v);
  void place_locals(Frame &f);
  void statement();
  void resolve(Frame &f);
  void report(const Unsupported &u);
};

using Decode = void (*)(Decoder &, Inst &);
struct Opcode {
  const char *name;
  Decode decode;
};
/* The tables of the files that define handlers; each ends in {nullptr}. */
extern const Opcode integer_opcodes[], float_opcodes[], convert_opcodes[], predicate_opcodes[], move_opcodes[],
    memory_opcodes[], flow_opcodes[], warp_opcodes[], matrix_opcodes[], async_opcodes[], wgmma_opcodes[];
} // namespace emu

#endif
