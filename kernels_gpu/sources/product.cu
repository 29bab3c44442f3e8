// Products of quantised matrices with 1 to 8 tokens (decode and verify), and the rows of an embedding.
//
// Mapping   128 threads, 4 warps.  1 << shift warps share a row (1, 2 or 4, chosen by the number of columns alone, so
//           that a lane has two units or more), so a block does 4 >> shift rows.  Lane l of the row's warp w multiplies
//           units 32 * w + l, then 32 << shift further.  What was unpacked is used for all tokens before the next unit.
//           One launch takes up to three matrices of one format (Q, K and V): their blocks follow each other, so small
//           ones fill no wave of their own.  A layer of a llama is 10 launches, 11 where V has a format of its own.
// Order     A (token, row) sum: a lane's units in ascending order, a butterfly over the lanes, the warps in order.  It
//           is the same for any number of tokens: verifying drafts equals decoding bit for bit.
// Bytes     Each weight is read once: 4.5 bits a weight for Q4_0 and IQ4_NL, 4.31 for IQ4_XS, 4.25 for MXFP4, 4.63 for
//           Q4_K, 6.56 for Q6_K, 8.5 for Q8_0 (+ the records, from L1 and L2: 44 bytes a unit and token, 76 with two
//           terms; a gate and an up share them).
// Loads     Of a lane for a unit, as counted in the machine code of sm_86 (CUDA 13, 2026-12-01), two terms.  The records'
//           share of that is 4 of 16 bytes, one of 8 (where sums are needed) and one of 4.  With one token the loads of
//           two units, of a gate and an up those of both, are issued before the first is used.
//                        bytes of   loads of 16, 8, 4, 2 bytes   instructions of a unit           registers
//                        weights                                 1 token / gate or up / 4 tokens  1 / 1 / 4
//               Q2_K       10.5     4  2  2  1                      96 /  76 / 220                80 / 64 / 95
//               Q3_K       14.25    4  2  2  2                     107 /  85 / 221                93 / 74 / 95
//               Q4_0       18       5  1  1  1                      61 /  50 / 183                92 / 64 / 95
//               Q4_1       20       5  1  2  0                      63 /  52 / 188                92 / 64 / 96
//               Q4_K       18.5     5  1  2  1                      75 /  62 / 195                96 / 68 / 96
//               Q5_0       22       5  1  2  1                      88 /  69 / 198                84 / 70 / 96
//               Q5_1       24       5  1  3  0                      90 /  70 / 203                84 / 70 / 95
//               Q5_K       22.5     5  1  3  1                      94 /  80 / 214                96 / 72 / 96
//               Q6_K       26.25    5  2  1  2                     104 /  81 / 217                94 / 78 / 96
//               Q8_0       34       6  0  1  1                      46 /  39 / 151                96 / 64 / 96
//               IQ4_NL     18       5  0  1  1                     123 / 109 / 220                89 / 71 / 96
//               IQ4_XS     17.25    5  0  1  1, and one of 1       127 / 117 / 227                93 / 78 / 96
//               MXFP4      17       5  0  1  0, and one of 1       126 / 113 / 212                91 / 72 / 128
//           Of the last three, 32 byte permutations and about 24 shifts and masks look the codes' values up.  Beside its
//           units a row takes about 160 instructions of each warp (a gate and an up together 310).
// Work      8 dp4a a unit, token and term.
// Expected  How long the fuller of the two, issue slots or integer lanes, is busy while the memory delivers at its full
//           rate; rows of 4096 columns with what they take beside their units, two terms, 1 token (4 tokens):
//                        RTX 3060, 360 GB/s   4070, 504 GB/s   4090, 1008 GB/s   5090, 1792 GB/s
//               Q2_K       91 % (197)           56 % (120)       39 % (85)         55 % (119)
//               Q3_K       75 % (146)           46 % (89)        32 % (63)         45 % (88)
//               Q4_0       45 % (98)            28 % (60)        19 % (42)         27 % (60)
//               Q4_K       48 % (101)           29 % (62)        21 % (44)         29 % (61)
//               Q5_K       47 % (91)            29 % (56)        20 % (39)         28 % (55)
//               Q6_K       39 % (78)            24 % (48)        17 % (34)         24 % (47)
//               Q8_0       21 % (46)            13 % (28)         9 % (20)         13 % (28)
//               IQ4_NL     72 % (118)           44 % (72)        31 % (51)         44 % (71), IQ4_XS and MXFP4 a tenth more
//           To cover 600 ns a multiprocessor must have 7.5, 6.4, 4.6 and 6.2 KB of weights in flight there; its blocks
//           (5 with one token, 6 or 7 of a gate and an up, 5 with four tokens) have room for 13 (Q2_K), 24 (Q4_K) and 43
//           KB (Q8_0) with one token, half that with four.  So one token should come near the bandwidth everywhere (80
//           to 90 % of it, for launches and ends of rows).  Four tokens in one pass should cost about the same from Q4_0
//           on, somewhat more on an RTX 3060; with Q2_K and Q3_K the integer lanes of a 3060 limit them (up to 2 times
//           one token), with one term (--activations fast) less so.
// Measured  Not yet on a card.
#include "product.cuh"

#define BLOCKS_OF_4 (HAS_EXPONENTS && TERMS == 2 ? 4 : 5)  // of a multiprocessor; with five MXFP4 would spill

struct Part {  // one of the matrices that share x, and where its product goes
    const byte* weights;
    int rows;
    const float* bias;
    float* out;
    int out_stride;
};

// out[token][row] (+)= (x . weights[row] + bias[row]) * scale of each part, for the `count` tokens from `first` on.
// Blocks of one part follow those of the part before.
template <int TOKENS>
__device__ __forceinline__ void product(int units, byte* records, int capacity, int first, int count, int shift,
                                        float scale, int mode, Part part, const Part& second, const Part& third) {
    __shared__ Shared<1, TOKENS> shared;
    const int rows_of_block = WARPS >> shift;
    int block = blockIdx.x, blocks = (part.rows + rows_of_block - 1) >> (2 - shift);
    if (block >= blocks) {
        block -= blocks;
        part = second;
        blocks = (part.rows + rows_of_block - 1) >> (2 - shift);
        if (block >= blocks) block -= blocks, part = third;
    }
    const int row = block * rows_of_block + (warp_of_thread() >> shift);
    const bool is_inside = row < part.rows;
    const Planes planes[1] = {planes_at(part.weights, part.rows, units)};
    float sums[1];
    multiply_row(planes, records_at(records, capacity, units, TERMS), first, count, is_inside ? row : part.rows - 1,
                 shift, shared, sums);
    const int token = lane_of_thread();
    if (!is_inside || token >= count || warp_of_thread() & ((1 << shift) - 1)) return;
    float sum = sums[0];
    if (part.bias) sum += part.bias[row];
    sum *= scale;
    float* target = part.out + (size_t)(first + token) * part.out_stride + row;
    *target = mode == ADD ? *target + sum : sum;
}

// out[token][row] = what becomes of x . gate[row] and x . up[row].
template <int TOKENS>
__device__ __forceinline__ void gated(const byte* gate, const byte* up, int rows, int units, byte* records,
                                      int capacity, int first, int count, int shift, int mode, float* out,
                                      int out_stride) {
    __shared__ Shared<2, TOKENS> shared;
    const int row = blockIdx.x * (WARPS >> shift) + (warp_of_thread() >> shift);
    const bool is_inside = row < rows;
    const Planes planes[2] = {planes_at(gate, rows, units), planes_at(up, rows, units)};
    float sums[2];
    multiply_row(planes, records_at(records, capacity, units, TERMS), first, count, is_inside ? row : rows - 1, shift,
                 shared, sums);
    const int token = lane_of_thread();
    if (!is_inside || token >= count || warp_of_thread() & ((1 << shift) - 1)) return;
    out[(size_t)(first + token) * out_stride + row] = gated_value(sums[0], sums[1], mode);
}

#define PRODUCT_PARAMETERS \
    int units, byte *records, int capacity, int first, int count, int shift, float scale, int mode, \
        const byte *weights, int rows, const float *bias, float *out, int out_stride, const byte *weights_2, \
        int rows_2, const float *bias_2, float *out_2, int out_stride_2, const byte *weights_3, int rows_3, \
        const float *bias_3, float *out_3, int out_stride_3
#define PRODUCT_ARGUMENTS \
    units, records, capacity, first, count, shift, scale, mode, {weights, rows, bias, out, out_stride}, \
        {weights_2, rows_2, bias_2, out_2, out_stride_2}, { weights_3, rows_3, bias_3, out_3, out_stride_3 }
#define GATED_PARAMETERS \
    const byte *gate, const byte *up, int rows, int units, byte *records, int capacity, int first, int count, \
        int shift, int mode, float *out, int out_stride
#define GATED_ARGUMENTS gate, up, rows, units, records, capacity, first, count, shift, mode, out, out_stride

extern "C" {
__global__ void __launch_bounds__(THREADS, 5) product_1(PRODUCT_PARAMETERS) { product<1>(PRODUCT_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) product_2(PRODUCT_PARAMETERS) { product<2>(PRODUCT_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, BLOCKS_OF_4) product_4(PRODUCT_PARAMETERS) { product<4>(PRODUCT_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) product_8(PRODUCT_PARAMETERS) { product<8>(PRODUCT_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) gated_1(GATED_PARAMETERS) { gated<1>(GATED_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) gated_2(GATED_PARAMETERS) { gated<2>(GATED_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 4) gated_4(GATED_PARAMETERS) { gated<4>(GATED_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) gated_8(GATED_PARAMETERS) { gated<8>(GATED_ARGUMENTS); }

// out[token] = weights[token_ids[token]] * scale.  A block a token, a thread a unit.
__global__ void __launch_bounds__(THREADS) embed(const byte* weights, int rows, int units, const int* token_ids,
                                                 float scale, float* out, int out_stride) {
    const Planes planes = planes_at(weights, rows, units);
    const int row = token_ids[blockIdx.x];
    for (int at = threadIdx.x; at < units; at += THREADS) {
        const Unit unit = load_unit(planes, row, at);
        float4* target = (float4*)(out + (size_t)blockIdx.x * out_stride + at * WARP);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int column = 4 * i;
            target[i] = make_float4(weight_of(unit, column) * scale, weight_of(unit, column + 1) * scale,
                                    weight_of(unit, column + 2) * scale, weight_of(unit, column + 3) * scale);
        }
    }
}
}
