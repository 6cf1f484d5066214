/* Train LeNet on arrays in memory: 2000 images that show a bright square left or right of the
 * center.
 *
 *   cmake -B build && cmake --build build && build/arrays */
#include <gradpool/gradpool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 2000, SIDE = 28 };

/* Draw the images and set their labels: 0 left, 1 right. */
static void draw(unsigned char *pictures, int *labels)
{
    memset(pictures, 0, COUNT * SIDE * SIDE);
    for (int i = 0; i < COUNT; i++) {
        int left = rand() % 20, top = rand() % 20;

        labels[i] = left >= 10;
        for (int y = top; y < top + 8; y++)
            memset(pictures + (i * SIDE + y) * SIDE + left, 255, 8);
    }
}

int main(void)
{
    static unsigned char pictures[COUNT * SIDE * SIDE];
    static int labels[COUNT];
    static const char *const names[] = { "left", "right" }, *const options[] = { "max-epochs=2", NULL };
    const gp_array_dataset_info info = {
        .count = COUNT, .channels = 1, .height = SIDE, .width = SIDE, .class_count = 2, .class_names = names
    };
    gp_train_request request = { .network = "lenet", .options = options };
    gp_training_summary summary;
    gp_training *training = NULL;
    gp_array_dataset *arrays = NULL;
    gp_pool *pool = NULL;
    gp_error err;

    draw(pictures, labels);
    gp_status status = gp_array_dataset_new(&arrays, &info, pictures, labels, &err);

    if (status == GP_OK) {
        request.data = request.validation_data = gp_array_dataset_source(arrays);
        status = gp_pool_open(&pool, NULL, &err);
    }
    if (status == GP_OK)
        status = gp_train(&training, pool, &request, &err);
    if (status == GP_OK) {
        gp_training_summarize(training, &summary);
        printf("%.1f %% of the images are classified correctly\n", 100 * summary.validation_accuracy);
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    gp_training_free(training);
    gp_pool_close(pool);
    gp_array_dataset_free(arrays);
    return status == GP_OK ? 0 : 1;
}
