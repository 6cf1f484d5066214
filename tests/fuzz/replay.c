/* replay.c: main() for a fuzz target without libFuzzer.
 *
 * Every file in the given folders runs once unchanged and then in hostile forms: truncated, with
 * huge lengths, and with repeated parts. Fails if an input exceeds the memory limit for
 * decoders. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/heap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 1 << 21, HOSTILE = 16 };
static const int64_t heap_max = 64 << 20;

static struct {
    unsigned files, inputs, failed;
    int64_t most;
    uint64_t random;
} done = { .random = 1 };

static uint32_t draw(uint32_t below)
{
    done.random = done.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(done.random >> 33) % below;
}

/* Copy the input to a block of exactly its size, so that a sanitizer detects reads past the end. */
static void input_run(const char *path, int form, const uint8_t *bytes, size_t count)
{
    uint8_t *exact = malloc(count == 0 ? 1 : count);

    if (exact == NULL)
        abort();
    memcpy(exact, bytes, count);
    heap_begin();
    LLVMFuzzerTestOneInput(exact, count);
    int64_t most = heap_most();

    free(exact);
    done.inputs++;
    done.most = most > done.most ? most : done.most;
    if (most <= heap_max)
        return;
    printf("%s, form %d: %lld MiB used, limit %lld MiB\n", path, form, (long long)(most >> 20),
           (long long)(heap_max >> 20));
    done.failed++;
}

static const uint8_t ones[8] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

/* Make a hostile form; deterministic for each file. */
static size_t make_hostile(uint8_t *to, const uint8_t *from, size_t count)
{
    static const uint8_t large[][8] = { { 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
                                        { 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f },
                                        { 0x00, 0xff, 0xff, 0x00, 0x00, 0xff, 0xff, 0x00 },
                                        { 0xdd, 0xff, 0xff, 0xff, 0xfe, 0xdf, 0x7f,
                                          0xff } }; /* longest length in msgpack */
    uint32_t at = draw((uint32_t)count), kind = draw(8), bytes = 1u << draw(4);

    memcpy(to, from, count);
    if (bytes > count - at)
        bytes = (uint32_t)(count - at);
    if (kind == 0)
        return at;
    if (kind == 1 && 2 * count - at <= BYTES_MAX) { /* repeat the rest */
        memcpy(to + count, from + at, count - at);
        return 2 * count - at;
    }
    memcpy(to + at, kind <= 3 ? ones : large[kind - 4], bytes);
    if (kind % 2 == 0)
        to[draw((uint32_t)count)] ^= (uint8_t)(1 << draw(8));
    return count;
}

static void file_run(const char *path)
{
    static uint8_t bytes[BYTES_MAX], hostile[BYTES_MAX];
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        perror(path);
        done.failed++;
        return;
    }
    size_t count = fread(bytes, 1, sizeof(bytes), file);

    fclose(file);
    done.files++;
    done.random = count;
    input_run(path, 0, bytes, count);
    for (int form = 1; form <= HOSTILE && count > 0; form++)
        input_run(path, form, hostile, make_hostile(hostile, bytes, count));
}

/* Return whether the counter sees an allocation above the limit; otherwise the test is
 * meaningless. */
static int counter_works(void)
{
    heap_begin();
    char *volatile block = malloc((size_t)heap_max + 1);

    if (block != NULL)
        memset(block, 1, 1);
    free(block);
    return !GP_HEAP_COUNTED || heap_most() > heap_max;
}

int main(int count, char **folders)
{
    char path[2048];

    if (!counter_works()) {
        printf("a block of more than 64 MiB was not counted\n");
        return 1;
    }
    for (int i = 1; i < count; i++) {
        DIR *dir = opendir(folders[i]);

        if (dir == NULL) {
            perror(folders[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", folders[i], entry->d_name);
            file_run(path);
        }
        closedir(dir);
    }
    printf("%u inputs of %u files, %u failed; ", done.inputs, done.files, done.failed);
    if (GP_HEAP_COUNTED)
        printf("peak memory of one input: %.1f MiB\n", (double)done.most / (1 << 20));
    else
        printf("memory is not counted under a sanitizer\n");
    return done.failed != 0 || done.files == 0 ? 1 : 0;
}
