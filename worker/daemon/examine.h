/* examine.h -- what the GPU engine and its libraries are and do on this machine: the body of `gradpool-worker --examine`.
 *
 * For a process of its own, as --probe is, but it uses the devices: `gradpool doctor` runs it.  One JSON object:
 *
 *   { "engine": "cuda" | "",  "problem": "...",       "": it loads; else why it does not
 *     "versions": "CUDA 13.0, cuDNN 9.19.0, ...",     as linked
 *     "driver": 13000, "runtime": 13000,              CUDA's versions; 0: not known
 *     "devices": [ { "ordinal", "name", "uuid", "memory_total", "memory_free",
 *                    "problem": "" } ],               what kept a kernel from giving what the host computes
 *     "peers": [ { "from": 0, "to": 1, "direct": true, "bytes_per_second": 4e11, "problem": "" } ] } */
#ifndef GP_EXAMINE_H
#define GP_EXAMINE_H

/* gp_examine_main -- examine, print the JSON on standard output, return the exit code. */
int gp_examine_main(void);

#endif
