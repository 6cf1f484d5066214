/* cards.h: simulated GPUs: a fake NVML lists them, and a plugin stands in for them.
 *
 * Includers define FAKE_NVML_LIBRARY. */
#ifndef GP_TEST_CARDS_H
#define GP_TEST_CARDS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ONE_CARD  "uuid=%1$s,name=Fake H200,bus=00000000:01:00.0,total=16384,cc=9.0"
#define TWO_CARDS ONE_CARD ";uuid=%2$s,name=Fake H200,bus=00000000:02:00.0,total=16384,cc=9.0"

static char card_uuids[4][64]; /* unique to this process: device claims are per user and machine */

/* Set up GPUs before the pool starts. cards: FAKE_NVML with %1$s .. %4$s for the UUIDs. */
static inline void cards_begin(const char *cards, const char *plugin)
{
    char text[1024];

    for (int i = 0; i < 4; i++)
        snprintf(card_uuids[i], sizeof(card_uuids[i]), "GPU-%08x-0000-4000-8000-00000000000%d",
                 (unsigned)getpid(), i);
    snprintf(text, sizeof(text), cards, card_uuids[0], card_uuids[1], card_uuids[2], card_uuids[3]);
    setenv("FAKE_NVML", text, 1);
    setenv("GRADPOOL_NVML_LIBRARY", FAKE_NVML_LIBRARY, 1);
    setenv("GRADPOOL_CUDA_LIBRARY", "/nonexistent/libcuda.so.1", 1);
    setenv("GRADPOOL_CUDA_PLUGIN", plugin, 1);
}

static inline void cards_end(void)
{
    static const char *const names[] = { "FAKE_NVML", "GRADPOOL_NVML_LIBRARY", "GRADPOOL_CUDA_LIBRARY",
                                         "GRADPOOL_CUDA_PLUGIN" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
}

#endif
