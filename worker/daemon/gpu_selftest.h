/* gpu_selftest.h -- the command `gradpool-worker --selftest`: test the GPU engine and the GPU
 * libraries on this machine.
 *
 * The command runs in a separate process, started by `gradpool doctor`. Unlike --probe it uses the
 * devices. It prints one JSON object:
 *
 *   { "engine": "cuda" | "",  "problem": "...",       "": it loads; else the error
 *     "versions": "CUDA 13.0, cuDNN 9.19.0, ...",     as linked
 *     "driver": 13000, "runtime": 13000,              CUDA versions; 0: unknown
 *     "devices": [ { "ordinal", "name", "uuid", "memory_total", "memory_free",
 *                    "problem": "" } ],               self-test error; "": the results match the
 *                                                     host
 *     "peers": [ { "from": 0, "to": 1, "direct": true, "bytes_per_second": 4e11, "problem": "" }
 *     ] } */
#ifndef GP_GPU_SELFTEST_H
#define GP_GPU_SELFTEST_H

/* Test the engine and all devices, print the JSON object on standard output, and return the exit
 * code. */
int gp_gpu_selftest_main(void);

#endif
