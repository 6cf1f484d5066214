/* custom.h: requests from test_custom_loops.c to the tasks in custom.c. */
#ifndef GP_TEST_CUSTOM_H
#define GP_TEST_CUSTOM_H

#include <stdint.h>

typedef struct custom_request {
    char network[64], source[64], options[128];
    uint32_t batch, epochs, micro_batch;
    double rate;
} custom_request;

/* Memory and descriptors of a worker, as returned by `footprint`. */
typedef struct custom_footprint {
    int64_t anonymous_kib, shared_kib, descriptors;
} custom_footprint;

#endif
