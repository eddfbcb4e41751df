// SPDX-License-Identifier: Apache-2.0
// A dense switch (brx.idx) in a tiny bytecode interpreter; every thread runs its own program.
extern "C" __global__ void jump_table(const unsigned char* code, const int* start, int* out) {
  int stack[8], sp = 0, pc = start[threadIdx.x], acc = threadIdx.x, steps = 0;
  for (;; ++steps) {
    int op = code[pc++];
    switch (op) {
      case 0: out[threadIdx.x] = acc * 100 + steps; return;
      case 1: acc += code[pc++]; break;
      case 2: acc -= 5; break;
      case 3: acc *= 3; break;
      case 4: acc ^= 0x55; break;
      case 5: acc = acc << 2 | (unsigned)acc >> 30; break;
      case 6: stack[sp++ & 7] = acc; break;
      case 7: acc += stack[--sp & 7]; break;
      case 8: acc = __brev(acc); break;
      case 9: acc = max(acc, 17); break;
      case 10: if (acc & 1) pc += code[pc]; ++pc; break;
      case 11: acc = -acc; break;
      case 12: acc %= 1001; break;
      case 13: acc = __popc(acc); break;
      default: acc += op; break;
    }
  }
}
