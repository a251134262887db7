#!/bin/bash
# tests/kernels/cuda_mutants.sh - break the CUDA kernels, one way at a time: do the tests and the emulator see it?
# SPDX-License-Identifier: BSD-3-Clause
#
# usage: make mutants, or tests/kernels/cuda_mutants.sh [BUILD [WORD]]: of the mutants whose names have WORD. Minutes.
# Each mutant is compiled to PTX, linked into a module of its own, and run through tests/kernels/test_compare on the
# emulator with every check on. One that passes is a hole in the tests.
cd "$(dirname "$0")/../.." || exit 2
build=${1:-build} word=${2-}
emulator=$build/tests/cudaemu/lib
[ -e "$emulator/libcudart.so.13" ] || { echo "cuda_mutants.sh: no $emulator/libcudart.so.13: make check builds it" >&2; exit 2; }
setting() { sed -n "s/^$1 = //p" "$build/Makefile" | head -n 1; }
nvcc=$(setting NVCC) cppflags=$(setting CUDA_CPPFLAGS) ldflags=$(setting CUDA_LDFLAGS)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
caught=0 missed=0

compile() { # FOLDER FILE OBJECT
  # shellcheck disable=SC2086
  $nvcc -std=c++17 -O3 -lineinfo -gencode arch=compute_90a,code=compute_90a -Xcompiler -fPIC,-fvisibility=hidden -DHAVE_CONFIG_H \
    -I"$build" -Isrc -I"$1" -I. $cppflags -c "$1/kernels/cuda/$2" -o "$3" 2>"$work/err" || { cat "$work/err" >&2; return 1; }
}

# The kernels as they are, once: a mutant compiles one file anew, or all that include a header.
mkdir -p "$work/objects" "$work/tree/kernels"
for file in kernels/cuda/*.cu; do compile . "${file##*/}" "$work/objects/$(basename "$file" .cu).o" || exit 2; done

run_tests() { # FILE, in the module in $work; what the shell says of a test that was aborted is not wanted
  (
    case $1 in attention*.cu | hopper.h) export MPILM_TEST_ONLY=attention_ ;; esac # what else could fail
    case $1 in attention_mma.cu | mma.h) export MPILM_CUDA_MMA_SYNC=1 ;; esac      # the emulated device has others
    export MPILM_CUDA_MODULE="$work/mpilm_cuda.so" MPILM_TEST_BACKEND=cuda LD_LIBRARY_PATH="$emulator"
    export CUDAEMU_RACE=1 CUDAEMU_INIT=1 OMPI_MCA_ess_singleton_isolated=1
    timeout 300 "$build/tests/kernels/test_compare" >"$work/out" 2>"$work/err" </dev/null &&
      CUDAEMU_CUBLAS=0 MPILM_TEST_ONLY=linear timeout 300 "$build/tests/kernels/test_compare" >>"$work/out" 2>>"$work/err" </dev/null &&
      CUDAEMU_CUBLAS=3 MPILM_TEST_ONLY=linear_gelu timeout 300 "$build/tests/kernels/test_compare" >>"$work/out" 2>>"$work/err" </dev/null &&
      CUDAEMU_LAZY=1 MPILM_TEST_ONLY=copies timeout 300 "$build/tests/kernels/test_compare" >>"$work/out" 2>>"$work/err" </dev/null
  ) 2>/dev/null
}

mutant() { # NAME FILE PERL: the expression changes the file, or the script is out of date
  case $1 in *"$word"*) ;; *) return ;; esac
  local file objects=$work/mutant
  rm -rf "$objects" "$work/tree/kernels/cuda"
  cp -r "$work/objects" "$objects"
  cp -r kernels/cuda "$work/tree/kernels/cuda"
  perl -0pi -e "$3" "$work/tree/kernels/cuda/$2"
  if cmp -s "kernels/cuda/$2" "$work/tree/kernels/cuda/$2"; then
    echo "$1: does not apply to $2 any more"
    missed=$((missed + 1))
    return
  fi
  for file in "$2" $([[ $2 == *.cu ]] || grep -l "kernels/cuda/$2" kernels/cuda/*.cu | xargs -n 1 basename); do
    [[ $file == *.h ]] || compile "$work/tree" "$file" "$objects/$(basename "$file" .cu).o" || exit 2
  done
  # shellcheck disable=SC2086
  g++ -shared -o "$work/mpilm_cuda.so" "$objects"/*.o $ldflags -lcublasLt -lnccl -lcudart || exit 2
  if run_tests "$2"; then
    missed=$((missed + 1))
    printf '%-45s NOT CAUGHT\n' "$1"
  else
    caught=$((caught + 1))
    printf '%-45s %.90s\n' "$1" "$(cat "$work/err" "$work/out" | grep -aE -m 1 'cudaemu:|^not ok')"
  fi
}

mutant "attention: keys not waited for" attention_mma.cu 's|wait_for_copies<0>\(\);\n(    __syncthreads\(\); /\* keys)|$1|'
mutant "attention: no barrier before values" attention_mma.cu 's|__syncthreads\(\); /\* keys are there[^\n]*||'
mutant "attention: values not waited for" attention_mma.cu 's|wait_for_copies<0>\(\);\n(    __syncthreads\(\); /\* values)|$1|'
mutant "attention: no barrier before keys" attention_mma.cu 's|__syncthreads\(\); /\* values are there[^\n]*||'
mutant "attention: sees itself not" attention_mma.cu 's|j > i \+ 8 \* half|j >= i + 8 * half|'
mutant "attention: sees one key too many" attention_mma.cu 's|j <= i \+ 8 \* half|j <= i + 8 * half + 1|'
mutant "attention: dq, tile not waited for" attention_mma.cu 's|wait_for_copies<0>\(\);\n(    __syncthreads\(\); /\* this tile)|$1|'
mutant "attention: dq, no barrier" attention_mma.cu 's|__syncthreads\(\); /\* this tile is there[^\n]*||'
mutant "attention: dropout of the other row" scores.h 's|odd \? i \+ 8 : i, p|odd ? i : i + 8, p|'
mutant "mma: a fragment not transposed" mma.h 's|x4\.trans\.shared|x4.shared|'
mutant "wgmma: keys not waited for" attention_wgmma.cu 's|wait_for\(&s\.k\.full\[x\.k\.stage\], x\.k\.parity\);\n( *take_turn)|$1|'
mutant "wgmma: values not waited for" attention_wgmma.cu 's|wait_for\(&s\.v\.full\[x\.v\.stage\], x\.v\.parity\);||'
mutant "wgmma: values given back before their product" attention_wgmma.cu 's|(wait_for_products<0>\(\);\n)( *settle\(x\.O\), settle\(x\.P\);\n)( *if \(DROP && W == 128[^\n]*\n)( *if \(t\.p\.lane == 0\) arrive\(&s\.v\.empty\[x\.v\.stage\]\);\n)|$4$1$2$3|'
mutant "wgmma: scores not waited for" attention_wgmma.cu 's|wait_for_products<1>\(\);||'
mutant "wgmma: output not waited for" attention_wgmma.cu 's|wait_for_products<0>\(\);(\n *settle\(x\.O\), settle\(x\.P\);\n *if \(DROP)|$1|'
mutant "wgmma: no fence before a store" attention_wgmma.cu 's|written_for_copies\(\);||'
mutant "wgmma: a store's rows written too early" attention_wgmma.cu 's|if \(p\.lane == 0\) stores_have_read\(\);||'
mutant "wgmma: no warp barrier before a store" attention_wgmma.cu 's|(written_for_copies\(\);\n) *__syncwarp\(\);|$1|'
mutant "wgmma: copies do not wait for room" attention_wgmma.cu 's|wait_for\(&s\.k\.empty\[kv\.stage\], kv\.parity \^ 1\);||'
mutant "wgmma: queries not kept till the end" attention_wgmma.cu 's|wait_for\(&s\.q\.empty\[0\], q\.parity \^ 1\);||'
mutant "wgmma: sees itself not" attention_wgmma.cu 's/j > i \+ 8 \* half \|\|/j >= i + 8 * half ||/'
mutant "wgmma: sees one key too many" attention_wgmma.cu 's/j > i \+ 8 \* half \|\|/j > i + 8 * half + 1 ||/'
mutant "wgmma: sees the document before" attention_wgmma.cu 's/\|\| j < rows\.first\[half\]//'
mutant "wgmma: output not scaled anew" attention_wgmma.cu 's|x\.O\[n\]\[e\] \*= old\[e / 2\];|;|'
mutant "wgmma: dq sees one key too many" attention_wgmma.cu 's|j <= i \+ 8 \* half &&|j <= i + 8 * half + 1 \&\&|'
mutant "wgmma: dq, keys given back too early" attention_wgmma.cu 's|(  wait_for_products<0>\(\);\n)( *settle\(x\.dQ\), settle\(x\.dS\);\n)( *if \(j < t\.last\) \{\n *if \(t\.p\.lane == 0\) arrive[^\n]*\n *x\.done\.next\(\);\n *\}\n)|$3$1$2|'
mutant "wgmma: dkv sees one query too many" attention_wgmma.cu 's|\(j \+ 8 \* \(e / 2\) <= i \+ e % 2 &&|(j + 8 * (e / 2) <= i + e % 2 + 1 \&\&|'
mutant "wgmma: dkv sees the next document" attention_wgmma.cu 's|&& i \+ e % 2 < end\[e / 2\]||'
mutant "wgmma: dkv, queries not waited for" attention_wgmma.cu 's|wait_for\(&s\.q\.full\[x\.q\.stage\], x\.q\.parity\);||'
mutant "wgmma: dkv, queries given back too early" attention_wgmma.cu 's|( *wait_for_products<0>\(\); /\* these scores)|  if (n > 0 \&\& t.p.lane == 0) arrive(\&s.q.empty[x.done.stage]);\n$1|; s|(if \(n > 0\) \{\n) *if \(t\.p\.lane == 0\) arrive\(&s\.q\.empty\[x\.done\.stage\]\);|$1|'
mutant "wgmma: dkv, rows behind the end" attention_wgmma.cu 's|\* LOG2_E : INFINITY|* LOG2_E : 0|'
mutant "wgmma: the order of tasks loses some" attention_wgmma.cu 's|heads - chunk \* together\)|heads - chunk * together - (chunk > 0))|'
mutant "wgmma: atoms of the wrong distance" hopper.h 's|ROWS \* 128\);\n\}\n\n/\* Products run|1024);\n}\n\n/* Products run|'
mutant "wgmma: barriers expect a byte too few" hopper.h 's|"r"\(bytes\)\n|"r"(bytes - 16)\n|'
mutant "tiled attention: no barrier before a tile" attention.cu 's|__syncthreads\(\);||'
mutant "tiled attention: no barrier behind a tile" attention.cu 's|(__syncthreads\(\);.*?)__syncthreads\(\);|$1|s'
mutant "tiled attention: no __syncwarp" attention.cu 's|__syncwarp\(\);[^\n]*||'
mutant "cross entropy: no barrier" cross_entropy.cu 's|__syncthreads\(\);||'
mutant "cross entropy: padding has probability" cross_entropy.cu 's|v \+ k >= V|v + k > V|'
mutant "cross entropy: a column too many" cross_entropy.cu 's|if \(v \+ k < V\) s.sum|if (v + k <= V) s.sum|'
mutant "norm of heads: no barrier" norm.cu 's|__syncthreads\(\);||'
mutant "embedding: no barrier" embedding.cu 's|__syncthreads\(\);||'
mutant "sums: no barrier" sums.cu 's|__syncthreads\(\);||'
mutant "product without cuBLASLt: no barrier" linear.cu 's|__syncthreads\(\);||'
mutant "cache: no barrier" cache.cu 's|__syncthreads\(\);||'
mutant "rope: a pair too many" rope.cu 's|; i < all;|; i <= all;|'
mutant "all tensors: those not decayed are" optimizer.cu 's/s\.decayed \? a\.shrink : 1/a.shrink/'
mutant "all tensors: packs beyond the end" optimizer.cu 's/wide && i \+ PACK <= end/wide/'
mutant "all tensors: packs that are not aligned" optimizer.cu 's/bool wide = [^;]*;/bool wide = true;/'
mutant "all tensors: the gradient of another" optimizer.cu 's/all_g \+ s\.g_at/all_g/'
mutant "all tensors: squares of the piece before" sums.cu 's/begin = first != NULL \? first\[blockIdx\.x\]/begin = first != NULL ? first[0]/'
mutant "all tensors: squares beyond the end" sums.cu 's/wide && i \+ W <= n/wide/'
mutant "copies: the operations behind do not wait" copies.cu 's/lm_cuda_check\(cudaStreamWaitEvent\(lm_cuda.compute[^;]*;//'
mutant "copies: not behind the operations before" copies.cu 's/lm_cuda_check\(cudaStreamWaitEvent\(copies.stream[^;]*;//'
mutant "copies: nobody waits for them" copies.cu 's/lm_cuda_check\(cudaEventSynchronize[^;]*;//'
mutant "GELU in the product: not its derivative" linear.cu 's/CUBLASLT_EPILOGUE_DGELU/CUBLASLT_EPILOGUE_DEFAULT/'
mutant "GELU in the product: what it saw, elsewhere" linear.cu 's/row = s->what == FORWARD \? s->N : s->K/row = s->N + s->K/'
mutant "GELU in the product: no bias" linear.cu 's/s->bias \? CUBLASLT_EPILOGUE_GELU_AUX_BIAS :/false ? CUBLASLT_EPILOGUE_DEFAULT :/'
mutant "GELU in the product: refused, and not told" linear.cu 's/if \(refused\(p, s, what\)\) return false;/if (refused(p, s, what)) return true;/'
mutant "gradients stored: added instead" linear.cu 's/keep = o->add \? 1 : 0/keep = p->of.what == WEIGHT/'
mutant "gradients added: stored instead" linear.cu 's/keep = o->add \? 1 : 0/keep = 0/'
mutant "bias gradients stored: added instead" sums.cu 's/add \? out\[i\] \+ sum : sum/out[i] + sum/'
echo "$caught passed, $missed failed"
[ "$missed" -eq 0 ]
