/* bench_data.c -- images a second out of a folder: decoded, resized, in batches; and how long a list takes.
 *
 *   bench_data SOURCE [HxW] [THREADS] [SECONDS]
 * Prints one line of JSON: images_per_second by the wall clock and by processor time of all threads, and the seconds that
 * opening took (a second time: with a list that is kept).  No image is kept decoded.  bench_data.py does the same with
 * Pillow and torchvision. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "common/base/clock.h"
#include "common/data/image_index.h"
#include "common/data/image_store.h"
#include "common/data/loader.h"

enum { BATCH = 64, DEPTH = 3 };

static double cpu_seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6 +
           (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec * 1e-6;
}

static int fail(const gp_error *err)
{
    fprintf(stderr, "bench_data: %s\n", err->message);
    return 1;
}

/* The list alone, for folders whose files need not be images. */
static int list_only(const char *source)
{
    for (int turn = 0; turn < 2; turn++) {
        const gp_store_options options = { 0 };
        gp_image_list list;
        gp_error err;
        double begin = gp_now_seconds(), cpu = cpu_seconds();

        if (gp_folder_list(&list, source, GP_DATA_TRAIN, &options, &err) != GP_OK)
            return fail(&err);
        printf("{\"files\": %" PRIu32
               ", \"kept\": %s, \"seconds\": %.3f, \"cpu_seconds\": %.3f, \"bytes_per_file\": "
               "%.1f}\n",
               list.count, list.from_index ? "true" : "false", gp_now_seconds() - begin, cpu_seconds() - cpu,
               (double)gp_image_list_bytes(&list) / list.count);
        gp_image_list_deinit(&list);
    }
    return 0;
}

static int load(const gp_store *store, uint32_t threads, double seconds)
{
    const gp_store_info *info = gp_store_get_info(store);
    gp_sampler sampler;
    gp_loader *loader;
    gp_loader_batch *batch;
    gp_error err;
    uint64_t images = 0;
    uint32_t asked = 0, epoch = 0, size = info->count < BATCH ? info->count : BATCH;

    gp_sampler_init(&sampler, info->count, GP_SHUFFLE_EVERY_EPOCH, 1);
    if (gp_loader_new_augmented(&loader, store, &sampler, DEPTH, size, NULL, 1, threads, &err) != GP_OK)
        return fail(&err);
    double begin = gp_now_seconds(), cpu = cpu_seconds();

    for (uint32_t out = 0; gp_now_seconds() - begin < seconds; images += size) {
        for (; out < DEPTH; out++, asked += size) {
            if (asked + size > info->count) {
                asked = 0;
                epoch++;
            }
            if (gp_loader_request(loader, epoch, asked, size, &err) != GP_OK)
                return fail(&err);
        }
        if (gp_loader_take(loader, &batch, NULL, &err) != GP_OK)
            return fail(&err);
        gp_loader_release(loader, batch);
        out--;
    }
    seconds = gp_now_seconds() - begin;
    printf("{\"images\": %" PRIu64 ", \"channels\": %" PRIu32 ", \"height\": %" PRIu32 ", \"width\": %" PRIu32
           ", \"threads\": %" PRIu32 ", \"images_per_second\": %.1f, \"images_per_cpu_second\": %.1f}\n",
           images, info->channels, info->height, info->width, threads, (double)images / seconds,
           (double)images / (cpu_seconds() - cpu));
    gp_loader_free(loader);
    return 0;
}

int main(int count, char **arguments)
{
    gp_store_options options = { .channels = 3, .cache_bytes = 1 };
    unsigned height = 0, width = 0;
    gp_store *store;
    gp_error err;
    int code;

    if (count < 2 || count > 5) {
        fprintf(stderr, "usage: %s SOURCE [HxW|list] [THREADS] [SECONDS]\n", arguments[0]);
        return 2;
    }
    if (count > 2 && sscanf(arguments[2], "%ux%u", &height, &width) != 2)
        return list_only(arguments[1]);
    options.height = height;
    options.width = width;
    if (gp_store_open_with(&store, arguments[1], GP_DATA_TRAIN, &options, &err) != GP_OK)
        return fail(&err);
    code = load(store, count > 3 ? (uint32_t)atoi(arguments[3]) : 1, count > 4 ? atof(arguments[4]) : 5);
    gp_store_close(store);
    return code;
}
