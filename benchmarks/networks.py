"""The networks that edgec is compared with others on."""

from __future__ import annotations

NETWORKS = {
    "mnv2_tf2_i8": ("mnv2_tf2_i8",),
    "mnv1_025_128_u8": ("mnv1_025_128_u8",),
    "resnet8_i8": ("resnet8_i8",),
    "vww96_i8": ("vww96_i8",),
    "prisma_i8": ("prisma_i8",),
    "deeplab_dm05_u8": ("deeplab_dm05_u8",),
    "movenet_lightning_i8": ("movenet_lightning_i8",),
    "mnv1_025_224_f32": ("mnv1_025_224_f32",),
    "prisma_f32": ("prisma_f32", "prisma_onnx"),
    "deeplabv3_257_f32": ("deeplabv3_257_f32",),
    "mp_selfie_land": ("mp_selfie_land_f16", "mp_selfie_land_onnx"),
    "mp_face_landmark": ("mp_face_landmark_f16", "mp_face_landmark_onnx"),
    "ultraface_rfb320": ("ultraface_rfb320_tflite", "ultraface_rfb320"),
    "hourglass_pose": ("hourglass_pose",),
    "fns_udnie": ("fns_udnie_std_256",),
    "yolox_nano": ("yolox_nano_416",),
    "pfld_ghostone": ("pfld_ghostone",),
}
"""By name: what the data folder calls its files, one for each format; what LiteRT reads
is first.
"""

ONNX_NETWORKS = {
    "yunet_n_320": ("yunet_n_320",),
    "fastestdet": ("fastestdet_onnx",),
    "sinet": ("sinet_portrait_onnx",),
}
"""Further networks that are there as ONNX files alone, for the peers that read them."""
