/* bench_data.c: measure images per second from a folder, and the time to list it.
 *
 *   bench_data SOURCE HxW|0x0 [THREADS] [SECONDS]   decode and resize, in batches of 64
 *   bench_data SOURCE crop=SIDE [THREADS] [SECONDS] random crop and mirroring, normalized float
 *   bench_data SOURCE decode [THREADS] [SECONDS]    libjpeg-turbo only: decode each JPEG to RGB
 *   bench_data SOURCE list                          list the source, twice; s3://BUCKET/PREFIX once
 *
 * Prints one line of JSON: images_per_second by the wall clock, and images_per_cpu_second by the
 * CPU time of all threads. Decoded images are not cached. bench_data.py does the same with
 * torchvision and Pillow. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h> /* before jpeglib.h, which uses FILE */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

#include "common/base/clock.h"
#include "common/data/store/augment.h"
#include "common/data/source/image_index.h"
#include "common/data/source/image_reader.h"
#include "common/data/source/image_store.h"
#include "common/data/loader/loader.h"
#include "common/data/s3/s3.h"

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

/* List a folder only; its files need not be images. */
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

static gp_status object_count(void *context, const gp_s3_object *object, gp_error *err)
{
    (void)object;
    (void)err;
    ++*(uint64_t *)context;
    return GP_OK;
}

/* List an S3 prefix. */
static int list_bucket(const char *text)
{
    uint64_t objects = 0;
    double begin = gp_now_seconds(), cpu = cpu_seconds();
    char prefix[GP_S3_KEY_BYTES_MAX + 2];
    gp_s3_source source;
    gp_s3 *s3;
    gp_error err;

    if (gp_s3_source_parse(&source, text, &err) != GP_OK || gp_s3_open(&s3, &source, NULL, &err) != GP_OK)
        return fail(&err);
    snprintf(prefix, sizeof(prefix), "%s/", source.key);
    if (gp_s3_list(s3, prefix, object_count, &objects, &err) != GP_OK)
        return fail(&err);
    printf("{\"objects\": %" PRIu64 ", \"seconds\": %.3f, \"cpu_seconds\": %.3f}\n", objects,
           gp_now_seconds() - begin, cpu_seconds() - cpu);
    gp_s3_close(s3);
    return 0;
}

/* Print a measurement. */
static void tell(uint64_t images, uint32_t threads, double begin, double cpu)
{
    printf("{\"images\": %" PRIu64 ", \"threads\": %" PRIu32
           ", \"images_per_second\": %.1f, \"images_per_cpu_second\": %.1f}\n",
           images, threads, (double)images / (gp_now_seconds() - begin),
           (double)images / (cpu_seconds() - cpu));
}

/* Request the next batch, starting over at the end of the data. */
static gp_status request_next(gp_loader *loader, uint32_t count, uint32_t size, uint32_t *epoch,
                              uint32_t *first, gp_error *err)
{
    gp_status status;

    if (*first + size > count) {
        *first = 0;
        ++*epoch;
    }
    status = gp_loader_request(loader, *epoch, *first, size, err);
    *first += size;
    return status;
}

static int load(const gp_store *store, const gp_augment *augment, uint32_t threads, double seconds)
{
    uint32_t count = gp_store_get_info(store)->count, size = count < BATCH ? count : BATCH, first = 0,
             epoch = 0;
    const gp_loader_options options = { .depth = DEPTH,
                                        .capacity = size,
                                        .augment = augment,
                                        .seed = 1,
                                        .form = augment != NULL ? GP_PIXELS_FLOAT : GP_PIXELS_PLANES,
                                        .threads = threads };
    gp_sampler sampler;
    gp_loader *loader;
    gp_loader_batch *batch;
    gp_error err;
    gp_status status;
    uint64_t images = 0;
    double begin = 0, cpu = 0;

    gp_sampler_init(&sampler, count, GP_SHUFFLE_EVERY_EPOCH, 1);
    status = gp_loader_new(&loader, store, &sampler, &options, &err);
    if (status != GP_OK)
        return fail(&err);
    for (uint32_t i = 0; i < DEPTH && status == GP_OK; i++)
        status = request_next(loader, count, size, &epoch, &first, &err);
    for (uint32_t turn = 0; status == GP_OK && (turn < DEPTH || gp_now_seconds() - begin < seconds); turn++) {
        if (turn == 1) { /* the first pass is warm-up */
            begin = gp_now_seconds();
            cpu = cpu_seconds();
            images = 0;
        }
        status = gp_loader_take(loader, &batch, NULL, &err);
        if (status != GP_OK)
            break;
        gp_loader_release(loader, batch);
        images += size;
        status = request_next(loader, count, size, &epoch, &first, &err);
    }
    if (status == GP_OK)
        tell(images, threads, begin, cpu);
    gp_loader_free(loader);
    return status == GP_OK ? 0 : fail(&err);
}

/* ---- decoder only ---- */

typedef struct decode_share {
    pthread_t thread;
    const gp_image_list *list;
    uint32_t first, step;
    double until;
    uint64_t images;
} decode_share;

static size_t file_take(const char *path, unsigned char **data, size_t *room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat stat_;
    ssize_t got = -1;

    if (fd >= 0 && fstat(fd, &stat_) == 0) {
        if ((size_t)stat_.st_size > *room) {
            *room = (size_t)stat_.st_size;
            *data = realloc(*data, *room);
        }
        got = read(fd, *data, (size_t)stat_.st_size);
    }
    if (fd >= 0)
        close(fd);
    return got < 0 ? 0 : (size_t)got;
}

static void *decode_main(void *argument)
{
    decode_share *share = argument;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr error;
    unsigned char *file = NULL, *pixels = NULL;
    size_t file_room = 0, pixels_room = 0;

    jpeg.err = jpeg_std_error(&error); /* ends the program at a damaged file */
    jpeg_create_decompress(&jpeg);
    for (uint32_t i = share->first; gp_now_seconds() < share->until; i += share->step, share->images++) {
        char path[PATH_MAX];
        size_t bytes, stride;

        gp_image_list_path(share->list, i % share->list->count, path, sizeof(path));
        bytes = file_take(path, &file, &file_room);
        jpeg_mem_src(&jpeg, file, bytes);
        jpeg_read_header(&jpeg, TRUE);
        jpeg.out_color_space = JCS_RGB;
        jpeg_start_decompress(&jpeg);
        stride = (size_t)jpeg.output_width * 3;
        if (stride * jpeg.output_height > pixels_room) {
            pixels_room = stride * jpeg.output_height;
            pixels = realloc(pixels, pixels_room);
        }
        while (jpeg.output_scanline < jpeg.output_height) {
            JSAMPROW row = pixels + jpeg.output_scanline * stride;

            jpeg_read_scanlines(&jpeg, &row, 1);
        }
        jpeg_abort_decompress(&jpeg);
    }
    jpeg_destroy_decompress(&jpeg);
    free(file);
    free(pixels);
    return NULL;
}

static int decode_only(const char *source, uint32_t threads, double seconds)
{
    enum { SHARES_MAX = 64 };
    const gp_store_options options = { 0 };
    decode_share shares[SHARES_MAX];
    gp_image_list list;
    gp_error err;
    uint64_t images = 0;
    double begin, cpu;

    if (gp_folder_list(&list, source, GP_DATA_TRAIN, &options, &err) != GP_OK)
        return fail(&err);
    begin = gp_now_seconds();
    cpu = cpu_seconds();
    threads = threads < SHARES_MAX ? threads : SHARES_MAX;
    for (uint32_t i = 0; i < threads; i++) {
        shares[i] = (decode_share){ .list = &list, .first = i, .step = threads, .until = begin + seconds };
        if (pthread_create(&shares[i].thread, NULL, decode_main, &shares[i]) != 0)
            abort();
    }
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(shares[i].thread, NULL);
        images += shares[i].images;
    }
    tell(images, threads, begin, cpu);
    gp_image_list_deinit(&list);
    return 0;
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s SOURCE HxW|crop=SIDE|decode|list [THREADS] [SECONDS]\n", program);
    return 2;
}

int main(int count, char **arguments)
{
    static const float mean[3] = { 0.485f, 0.456f, 0.406f }, deviation[3] = { 0.229f, 0.224f, 0.225f };
    gp_store_options options = { .channels = 3, .cache_bytes = 1 };
    const char *what = count > 2 ? arguments[2] : "";
    uint32_t threads = count > 3 ? (uint32_t)atoi(arguments[3]) : 1;
    double seconds = count > 4 ? atof(arguments[4]) : 5;
    unsigned side = 0;
    bool crops = sscanf(what, "crop=%u", &side) == 1;
    gp_augment augment;
    gp_store *store;
    gp_error err;
    char text[100];
    int code;

    if (count < 3 || count > 5)
        return usage(arguments[0]);
    if (strcmp(what, "list") == 0)
        return gp_s3_is(arguments[1]) ? list_bucket(arguments[1]) : list_only(arguments[1]);
    if (strcmp(what, "decode") == 0)
        return decode_only(arguments[1], threads, seconds);
    if (!crops && sscanf(what, "%ux%u", &options.height, &options.width) != 2)
        return usage(arguments[0]);
    options.any_size = crops;
    snprintf(text, sizeof(text), "crop=resized crop-size=%u,%u x-reflection=0.5", side, side);
    if (gp_augment_parse(&augment, crops ? text : "", &err) != GP_OK ||
        gp_store_open_with(&store, arguments[1], GP_DATA_TRAIN, &options, &err) != GP_OK)
        return fail(&err);
    for (int c = 0; c < 3; c++) { /* constants from torchvision's recipes */
        store->info.scale[c] = 1 / (255 * deviation[c]);
        store->info.offset[c] = -mean[c] / deviation[c];
    }
    code = load(store, crops ? &augment : NULL, threads, seconds);
    gp_store_close(store);
    return code;
}
