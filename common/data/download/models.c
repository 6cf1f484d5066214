/* Trained networks for download: ImageNet weights from torchvision and timm, as ONNX files.
 *
 * They were published by github.com/onnx/models and are now at huggingface.co/onnxmodelzoo, one
 * repository per model. Sizes and SHA-256 checksums come from the Git LFS pointers in the former
 * (Computer_Vision/NAME/...). GoogLeNet is excluded: the file splits the input by channels, which
 * onnx_map.c cannot read. */
#include "common/data/download/get.h"

static const char mirror[] = "GRADPOOL_MODEL_URL";

#define MODEL(name, file, about, bytes, sum)                                                                 \
    {                                                                                                        \
        name, about, "https://huggingface.co/onnxmodelzoo/" file "/resolve/main",                            \
            &(const gp_get_file){ file ".onnx", bytes, sum }, 1, mirror                                      \
    }

const gp_get_set gp_get_models[] = {
    MODEL("alexnet", "alexnet_Opset17_torch_hub", "ImageNet, 1000 classes", 244407335,
          "d1fef6de9abfd04669ff0c450eaf02609f544c47623e6b80346180737863f5ee"),
    MODEL("vgg16", "vgg16_Opset17_torch_hub", "ImageNet, 1000 classes", 553437938,
          "1ad7f863cda9f3ff233317bb9d183651a3206ab271cf1c20870c851dafdbb9ba"),
    MODEL("resnet18", "resnet18_Opset17_torch_hub", "ImageNet, 1000 classes", 46748516,
          "eef70310eb26bdbc70babb290ee3239599ea9aed406bade711e3d2693b9d20e8"),
    MODEL("resnet34", "resnet34_Opset17_torch_hub", "ImageNet, 1000 classes", 87174026,
          "167517daf91ac8574625ac0170326f84926693f6460c2fb980d67be44c1d8389"),
    MODEL("resnet50", "resnet50_Opset17_torch_hub", "ImageNet, 1000 classes", 102146338,
          "eb6eabe74f278fb55336e49e639b2367dda69f6f3b0d86dea7ffa9d55e6a0939"),
    MODEL("resnet101", "resnet101_Opset17_torch_hub", "ImageNet, 1000 classes", 178034596,
          "ad5c2a502f1bd9754543aba73da6728993f590529afdb8ef83ec9418df440b69"),
    MODEL("squeezenet1.1", "squeezenet1_1_Opset17_torch_hub", "ImageNet, 1000 classes", 4958202,
          "fbb553444cab298bcac72cf623694e277dfe11d78662108f91ff46b6acb2cc5f"),
    MODEL("mobilenetv2", "mobilenet_v2_Opset17_torch_hub", "ImageNet, 1000 classes", 13992248,
          "1acdc7323ff91c6e47866b8507af26514b1c2d94f765afc0d210277ea084eb47"),
    MODEL("inceptionresnetv2", "inception_resnet_v2_Opset16_timm", "ImageNet, 1000 classes", 223402042,
          "db89de4912dcdbef45cc3bff1234d85bf37930da8f7412b73232fbe70530d4ce"),
    { 0 },
};
