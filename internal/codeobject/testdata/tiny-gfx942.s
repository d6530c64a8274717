
tiny-gfx942.co:	file format elf64-amdgpu

Disassembly of section .text:

0000000000001900 <stream>:
	s_load_dword s4, s[0:1], 0x10                              // 000000001900: C0020100 00000010
	s_waitcnt lgkmcnt(0)                                       // 000000001908: BF8CC07F
	v_cmp_gt_i32_e32 vcc, s4, v0                               // 00000000190C: 7D880004
	s_and_saveexec_b64 s[2:3], vcc                             // 000000001910: BE82206A
	s_cbranch_execz 32                                         // 000000001914: BF880020 <stream+0x98>
	s_load_dwordx4 s[8:11], s[0:1], 0x0                        // 000000001918: C00A0200 00000000
	v_lshl_or_b32 v4, v0, 4, 8                                 // 000000001920: D2000004 02210900
	v_mov_b32_e32 v5, 0                                        // 000000001928: 7E0A0280
	s_mov_b64 s[0:1], 0                                        // 00000000192C: BE800180
	s_mov_b64 s[2:3], 0x1000                                   // 000000001930: BE8201FF 00001000
	s_waitcnt lgkmcnt(0)                                       // 000000001938: BF8CC07F
	v_lshl_add_u64 v[2:3], s[10:11], 0, v[4:5]                 // 00000000193C: D2080002 0411000A
	v_lshl_add_u64 v[4:5], s[8:9], 0, v[4:5]                   // 000000001944: D2080004 04110008
	global_load_dwordx4 v[6:9], v[2:3], off offset:-8          // 00000000194C: DC5C9FF8 067F0002
	v_add_u32_e32 v0, 0x100, v0                                // 000000001954: 680000FF 00000100
	v_cmp_le_i32_e32 vcc, s4, v0                               // 00000000195C: 7D860004
	v_lshl_add_u64 v[2:3], v[2:3], 0, s[2:3]                   // 000000001960: D2080002 00090102
	s_or_b64 s[0:1], vcc, s[0:1]                               // 000000001968: 8780006A
	s_waitcnt vmcnt(0)                                         // 00000000196C: BF8C0F70
	v_add_u32_e32 v7, 1, v7                                    // 000000001970: 680E0E81
	v_add_u32_e32 v6, 1, v6                                    // 000000001974: 680C0C81
	v_add_u32_e32 v9, 1, v9                                    // 000000001978: 68121281
	v_add_u32_e32 v8, 1, v8                                    // 00000000197C: 68101081
	global_store_dwordx4 v[4:5], v[6:9], off offset:-8         // 000000001980: DC7C9FF8 007F0604
	v_lshl_add_u64 v[4:5], v[4:5], 0, s[2:3]                   // 000000001988: D2080004 00090104
	s_andn2_b64 exec, exec, s[0:1]                             // 000000001990: 89FE007E
	s_cbranch_execnz 65517                                     // 000000001994: BF89FFED <stream+0x4c>
	s_endpgm                                                   // 000000001998: BF810000
	s_nop 0                                                    // 00000000199C: BF800000
	s_nop 0                                                    // 0000000019A0: BF800000
	s_nop 0                                                    // 0000000019A4: BF800000
	s_nop 0                                                    // 0000000019A8: BF800000
	s_nop 0                                                    // 0000000019AC: BF800000
	s_nop 0                                                    // 0000000019B0: BF800000
	s_nop 0                                                    // 0000000019B4: BF800000
	s_nop 0                                                    // 0000000019B8: BF800000
	s_nop 0                                                    // 0000000019BC: BF800000
	s_nop 0                                                    // 0000000019C0: BF800000
	s_nop 0                                                    // 0000000019C4: BF800000
	s_nop 0                                                    // 0000000019C8: BF800000
	s_nop 0                                                    // 0000000019CC: BF800000
	s_nop 0                                                    // 0000000019D0: BF800000
	s_nop 0                                                    // 0000000019D4: BF800000
	s_nop 0                                                    // 0000000019D8: BF800000
	s_nop 0                                                    // 0000000019DC: BF800000
	s_nop 0                                                    // 0000000019E0: BF800000
	s_nop 0                                                    // 0000000019E4: BF800000
	s_nop 0                                                    // 0000000019E8: BF800000
	s_nop 0                                                    // 0000000019EC: BF800000
	s_nop 0                                                    // 0000000019F0: BF800000
	s_nop 0                                                    // 0000000019F4: BF800000
	s_nop 0                                                    // 0000000019F8: BF800000
	s_nop 0                                                    // 0000000019FC: BF800000

0000000000001a00 <stack>:
	s_load_dword s2, s[0:1], 0x8                               // 000000001A00: C0020080 00000008
	s_mov_b64 s[4:5], src_private_base                         // 000000001A08: BE8401ED
	v_mov_b32_e32 v2, 0                                        // 000000001A0C: 7E040280
	v_mov_b32_e32 v3, s5                                       // 000000001A10: 7E060205
	v_lshlrev_b32_e32 v0, 2, v0                                // 000000001A14: 24000082
	s_waitcnt lgkmcnt(0)                                       // 000000001A18: BF8CC07F
	v_mov_b32_e32 v1, s2                                       // 000000001A1C: 7E020202
	s_add_i32 s3, s2, 1                                        // 000000001A20: 81038102
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001A24: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001A2C: BF8C0F70
	v_or_b32_e64 v2, 0, 4                                      // 000000001A30: D1140002 00010880
	v_mov_b32_e32 v1, s3                                       // 000000001A38: 7E020203
	s_add_i32 s3, s2, 2                                        // 000000001A3C: 81038202
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001A40: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001A48: BF8C0F70
	v_or_b32_e64 v2, 0, 8                                      // 000000001A4C: D1140002 00011080
	v_mov_b32_e32 v1, s3                                       // 000000001A54: 7E020203
	s_add_i32 s3, s2, 3                                        // 000000001A58: 81038302
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001A5C: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001A64: BF8C0F70
	v_or_b32_e64 v2, 0, 12                                     // 000000001A68: D1140002 00011880
	v_mov_b32_e32 v1, s3                                       // 000000001A70: 7E020203
	s_add_i32 s3, s2, 4                                        // 000000001A74: 81038402
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001A78: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001A80: BF8C0F70
	v_mov_b32_e32 v2, 16                                       // 000000001A84: 7E040290
	v_mov_b32_e32 v1, s3                                       // 000000001A88: 7E020203
	s_add_i32 s3, s2, 5                                        // 000000001A8C: 81038502
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001A90: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001A98: BF8C0F70
	v_mov_b32_e32 v2, 20                                       // 000000001A9C: 7E040294
	v_mov_b32_e32 v1, s3                                       // 000000001AA0: 7E020203
	s_add_i32 s3, s2, 6                                        // 000000001AA4: 81038602
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001AA8: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001AB0: BF8C0F70
	v_mov_b32_e32 v2, 24                                       // 000000001AB4: 7E040298
	v_mov_b32_e32 v1, s3                                       // 000000001AB8: 7E020203
	s_add_i32 s3, s2, 7                                        // 000000001ABC: 81038702
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001AC0: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001AC8: BF8C0F70
	v_mov_b32_e32 v2, 28                                       // 000000001ACC: 7E04029C
	v_mov_b32_e32 v1, s3                                       // 000000001AD0: 7E020203
	s_add_i32 s3, s2, 8                                        // 000000001AD4: 81038802
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001AD8: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001AE0: BF8C0F70
	v_mov_b32_e32 v2, 32                                       // 000000001AE4: 7E0402A0
	v_mov_b32_e32 v1, s3                                       // 000000001AE8: 7E020203
	s_add_i32 s3, s2, 9                                        // 000000001AEC: 81038902
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001AF0: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001AF8: BF8C0F70
	v_mov_b32_e32 v2, 36                                       // 000000001AFC: 7E0402A4
	v_mov_b32_e32 v1, s3                                       // 000000001B00: 7E020203
	s_add_i32 s3, s2, 10                                       // 000000001B04: 81038A02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001B08: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001B10: BF8C0F70
	v_mov_b32_e32 v2, 40                                       // 000000001B14: 7E0402A8
	v_mov_b32_e32 v1, s3                                       // 000000001B18: 7E020203
	s_add_i32 s3, s2, 11                                       // 000000001B1C: 81038B02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001B20: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001B28: BF8C0F70
	v_mov_b32_e32 v2, 44                                       // 000000001B2C: 7E0402AC
	v_mov_b32_e32 v1, s3                                       // 000000001B30: 7E020203
	s_add_i32 s3, s2, 12                                       // 000000001B34: 81038C02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001B38: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001B40: BF8C0F70
	v_mov_b32_e32 v2, 48                                       // 000000001B44: 7E0402B0
	v_mov_b32_e32 v1, s3                                       // 000000001B48: 7E020203
	s_add_i32 s3, s2, 13                                       // 000000001B4C: 81038D02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001B50: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001B58: BF8C0F70
	v_mov_b32_e32 v2, 52                                       // 000000001B5C: 7E0402B4
	v_mov_b32_e32 v1, s3                                       // 000000001B60: 7E020203
	s_add_i32 s3, s2, 14                                       // 000000001B64: 81038E02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001B68: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001B70: BF8C0F70
	v_mov_b32_e32 v2, 56                                       // 000000001B74: 7E0402B8
	v_mov_b32_e32 v1, s3                                       // 000000001B78: 7E020203
	s_add_i32 s3, s2, 15                                       // 000000001B7C: 81038F02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001B80: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001B88: BF8C0F70
	v_mov_b32_e32 v2, 60                                       // 000000001B8C: 7E0402BC
	v_mov_b32_e32 v1, s3                                       // 000000001B90: 7E020203
	s_add_i32 s3, s2, 16                                       // 000000001B94: 81039002
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001B98: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001BA0: BF8C0F70
	v_mov_b32_e32 v2, 64                                       // 000000001BA4: 7E0402C0
	v_mov_b32_e32 v1, s3                                       // 000000001BA8: 7E020203
	s_add_i32 s3, s2, 17                                       // 000000001BAC: 81039102
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001BB0: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001BB8: BF8C0F70
	v_mov_b32_e32 v2, 0x44                                     // 000000001BBC: 7E0402FF 00000044
	v_mov_b32_e32 v1, s3                                       // 000000001BC4: 7E020203
	s_add_i32 s3, s2, 18                                       // 000000001BC8: 81039202
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001BCC: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001BD4: BF8C0F70
	v_mov_b32_e32 v2, 0x48                                     // 000000001BD8: 7E0402FF 00000048
	v_mov_b32_e32 v1, s3                                       // 000000001BE0: 7E020203
	s_add_i32 s3, s2, 19                                       // 000000001BE4: 81039302
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001BE8: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001BF0: BF8C0F70
	v_mov_b32_e32 v2, 0x4c                                     // 000000001BF4: 7E0402FF 0000004C
	v_mov_b32_e32 v1, s3                                       // 000000001BFC: 7E020203
	s_add_i32 s3, s2, 20                                       // 000000001C00: 81039402
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001C04: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001C0C: BF8C0F70
	v_mov_b32_e32 v2, 0x50                                     // 000000001C10: 7E0402FF 00000050
	v_mov_b32_e32 v1, s3                                       // 000000001C18: 7E020203
	s_add_i32 s3, s2, 21                                       // 000000001C1C: 81039502
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001C20: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001C28: BF8C0F70
	v_mov_b32_e32 v2, 0x54                                     // 000000001C2C: 7E0402FF 00000054
	v_mov_b32_e32 v1, s3                                       // 000000001C34: 7E020203
	s_add_i32 s3, s2, 22                                       // 000000001C38: 81039602
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001C3C: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001C44: BF8C0F70
	v_mov_b32_e32 v2, 0x58                                     // 000000001C48: 7E0402FF 00000058
	v_mov_b32_e32 v1, s3                                       // 000000001C50: 7E020203
	s_add_i32 s3, s2, 23                                       // 000000001C54: 81039702
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001C58: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001C60: BF8C0F70
	v_mov_b32_e32 v2, 0x5c                                     // 000000001C64: 7E0402FF 0000005C
	v_mov_b32_e32 v1, s3                                       // 000000001C6C: 7E020203
	s_add_i32 s3, s2, 24                                       // 000000001C70: 81039802
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001C74: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001C7C: BF8C0F70
	v_mov_b32_e32 v2, 0x60                                     // 000000001C80: 7E0402FF 00000060
	v_mov_b32_e32 v1, s3                                       // 000000001C88: 7E020203
	s_add_i32 s3, s2, 25                                       // 000000001C8C: 81039902
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001C90: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001C98: BF8C0F70
	v_mov_b32_e32 v2, 0x64                                     // 000000001C9C: 7E0402FF 00000064
	v_mov_b32_e32 v1, s3                                       // 000000001CA4: 7E020203
	s_add_i32 s3, s2, 26                                       // 000000001CA8: 81039A02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001CAC: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001CB4: BF8C0F70
	v_mov_b32_e32 v2, 0x68                                     // 000000001CB8: 7E0402FF 00000068
	v_mov_b32_e32 v1, s3                                       // 000000001CC0: 7E020203
	s_add_i32 s3, s2, 27                                       // 000000001CC4: 81039B02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001CC8: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001CD0: BF8C0F70
	v_mov_b32_e32 v2, 0x6c                                     // 000000001CD4: 7E0402FF 0000006C
	v_mov_b32_e32 v1, s3                                       // 000000001CDC: 7E020203
	s_add_i32 s3, s2, 28                                       // 000000001CE0: 81039C02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001CE4: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001CEC: BF8C0F70
	v_mov_b32_e32 v2, 0x70                                     // 000000001CF0: 7E0402FF 00000070
	v_mov_b32_e32 v1, s3                                       // 000000001CF8: 7E020203
	s_add_i32 s3, s2, 29                                       // 000000001CFC: 81039D02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001D00: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001D08: BF8C0F70
	v_mov_b32_e32 v2, 0x74                                     // 000000001D0C: 7E0402FF 00000074
	v_mov_b32_e32 v1, s3                                       // 000000001D14: 7E020203
	s_add_i32 s3, s2, 30                                       // 000000001D18: 81039E02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001D1C: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001D24: BF8C0F70
	v_mov_b32_e32 v2, 0x78                                     // 000000001D28: 7E0402FF 00000078
	v_mov_b32_e32 v1, s3                                       // 000000001D30: 7E020203
	s_add_i32 s3, s2, 31                                       // 000000001D34: 81039F02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001D38: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001D40: BF8C0F70
	v_mov_b32_e32 v2, 0x7c                                     // 000000001D44: 7E0402FF 0000007C
	v_mov_b32_e32 v1, s3                                       // 000000001D4C: 7E020203
	s_add_i32 s3, s2, 32                                       // 000000001D50: 8103A002
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001D54: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001D5C: BF8C0F70
	v_mov_b32_e32 v2, 0x80                                     // 000000001D60: 7E0402FF 00000080
	v_mov_b32_e32 v1, s3                                       // 000000001D68: 7E020203
	s_add_i32 s3, s2, 33                                       // 000000001D6C: 8103A102
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001D70: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001D78: BF8C0F70
	v_mov_b32_e32 v2, 0x84                                     // 000000001D7C: 7E0402FF 00000084
	v_mov_b32_e32 v1, s3                                       // 000000001D84: 7E020203
	s_add_i32 s3, s2, 34                                       // 000000001D88: 8103A202
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001D8C: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001D94: BF8C0F70
	v_mov_b32_e32 v2, 0x88                                     // 000000001D98: 7E0402FF 00000088
	v_mov_b32_e32 v1, s3                                       // 000000001DA0: 7E020203
	s_add_i32 s3, s2, 35                                       // 000000001DA4: 8103A302
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001DA8: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001DB0: BF8C0F70
	v_mov_b32_e32 v2, 0x8c                                     // 000000001DB4: 7E0402FF 0000008C
	v_mov_b32_e32 v1, s3                                       // 000000001DBC: 7E020203
	s_add_i32 s3, s2, 36                                       // 000000001DC0: 8103A402
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001DC4: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001DCC: BF8C0F70
	v_mov_b32_e32 v2, 0x90                                     // 000000001DD0: 7E0402FF 00000090
	v_mov_b32_e32 v1, s3                                       // 000000001DD8: 7E020203
	s_add_i32 s3, s2, 37                                       // 000000001DDC: 8103A502
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001DE0: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001DE8: BF8C0F70
	v_mov_b32_e32 v2, 0x94                                     // 000000001DEC: 7E0402FF 00000094
	v_mov_b32_e32 v1, s3                                       // 000000001DF4: 7E020203
	s_add_i32 s3, s2, 38                                       // 000000001DF8: 8103A602
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001DFC: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001E04: BF8C0F70
	v_mov_b32_e32 v2, 0x98                                     // 000000001E08: 7E0402FF 00000098
	v_mov_b32_e32 v1, s3                                       // 000000001E10: 7E020203
	s_add_i32 s3, s2, 39                                       // 000000001E14: 8103A702
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001E18: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001E20: BF8C0F70
	v_mov_b32_e32 v2, 0x9c                                     // 000000001E24: 7E0402FF 0000009C
	v_mov_b32_e32 v1, s3                                       // 000000001E2C: 7E020203
	s_add_i32 s3, s2, 40                                       // 000000001E30: 8103A802
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001E34: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001E3C: BF8C0F70
	v_mov_b32_e32 v2, 0xa0                                     // 000000001E40: 7E0402FF 000000A0
	v_mov_b32_e32 v1, s3                                       // 000000001E48: 7E020203
	s_add_i32 s3, s2, 41                                       // 000000001E4C: 8103A902
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001E50: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001E58: BF8C0F70
	v_mov_b32_e32 v2, 0xa4                                     // 000000001E5C: 7E0402FF 000000A4
	v_mov_b32_e32 v1, s3                                       // 000000001E64: 7E020203
	s_add_i32 s3, s2, 42                                       // 000000001E68: 8103AA02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001E6C: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001E74: BF8C0F70
	v_mov_b32_e32 v2, 0xa8                                     // 000000001E78: 7E0402FF 000000A8
	v_mov_b32_e32 v1, s3                                       // 000000001E80: 7E020203
	s_add_i32 s3, s2, 43                                       // 000000001E84: 8103AB02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001E88: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001E90: BF8C0F70
	v_mov_b32_e32 v2, 0xac                                     // 000000001E94: 7E0402FF 000000AC
	v_mov_b32_e32 v1, s3                                       // 000000001E9C: 7E020203
	s_add_i32 s3, s2, 44                                       // 000000001EA0: 8103AC02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001EA4: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001EAC: BF8C0F70
	v_mov_b32_e32 v2, 0xb0                                     // 000000001EB0: 7E0402FF 000000B0
	v_mov_b32_e32 v1, s3                                       // 000000001EB8: 7E020203
	s_add_i32 s3, s2, 45                                       // 000000001EBC: 8103AD02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001EC0: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001EC8: BF8C0F70
	v_mov_b32_e32 v2, 0xb4                                     // 000000001ECC: 7E0402FF 000000B4
	v_mov_b32_e32 v1, s3                                       // 000000001ED4: 7E020203
	s_add_i32 s3, s2, 46                                       // 000000001ED8: 8103AE02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001EDC: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001EE4: BF8C0F70
	v_mov_b32_e32 v2, 0xb8                                     // 000000001EE8: 7E0402FF 000000B8
	v_mov_b32_e32 v1, s3                                       // 000000001EF0: 7E020203
	s_add_i32 s3, s2, 47                                       // 000000001EF4: 8103AF02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001EF8: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001F00: BF8C0F70
	v_mov_b32_e32 v2, 0xbc                                     // 000000001F04: 7E0402FF 000000BC
	v_mov_b32_e32 v1, s3                                       // 000000001F0C: 7E020203
	s_add_i32 s3, s2, 48                                       // 000000001F10: 8103B002
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001F14: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001F1C: BF8C0F70
	v_mov_b32_e32 v2, 0xc0                                     // 000000001F20: 7E0402FF 000000C0
	v_mov_b32_e32 v1, s3                                       // 000000001F28: 7E020203
	s_add_i32 s3, s2, 49                                       // 000000001F2C: 8103B102
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001F30: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001F38: BF8C0F70
	v_mov_b32_e32 v2, 0xc4                                     // 000000001F3C: 7E0402FF 000000C4
	v_mov_b32_e32 v1, s3                                       // 000000001F44: 7E020203
	s_add_i32 s3, s2, 50                                       // 000000001F48: 8103B202
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001F4C: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001F54: BF8C0F70
	v_mov_b32_e32 v2, 0xc8                                     // 000000001F58: 7E0402FF 000000C8
	v_mov_b32_e32 v1, s3                                       // 000000001F60: 7E020203
	s_add_i32 s3, s2, 51                                       // 000000001F64: 8103B302
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001F68: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001F70: BF8C0F70
	v_mov_b32_e32 v2, 0xcc                                     // 000000001F74: 7E0402FF 000000CC
	v_mov_b32_e32 v1, s3                                       // 000000001F7C: 7E020203
	s_add_i32 s3, s2, 52                                       // 000000001F80: 8103B402
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001F84: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001F8C: BF8C0F70
	v_mov_b32_e32 v2, 0xd0                                     // 000000001F90: 7E0402FF 000000D0
	v_mov_b32_e32 v1, s3                                       // 000000001F98: 7E020203
	s_add_i32 s3, s2, 53                                       // 000000001F9C: 8103B502
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001FA0: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001FA8: BF8C0F70
	v_mov_b32_e32 v2, 0xd4                                     // 000000001FAC: 7E0402FF 000000D4
	v_mov_b32_e32 v1, s3                                       // 000000001FB4: 7E020203
	s_add_i32 s3, s2, 54                                       // 000000001FB8: 8103B602
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001FBC: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001FC4: BF8C0F70
	v_mov_b32_e32 v2, 0xd8                                     // 000000001FC8: 7E0402FF 000000D8
	v_mov_b32_e32 v1, s3                                       // 000000001FD0: 7E020203
	s_add_i32 s3, s2, 55                                       // 000000001FD4: 8103B702
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001FD8: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001FE0: BF8C0F70
	v_mov_b32_e32 v2, 0xdc                                     // 000000001FE4: 7E0402FF 000000DC
	v_mov_b32_e32 v1, s3                                       // 000000001FEC: 7E020203
	s_add_i32 s3, s2, 56                                       // 000000001FF0: 8103B802
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000001FF4: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000001FFC: BF8C0F70
	v_mov_b32_e32 v2, 0xe0                                     // 000000002000: 7E0402FF 000000E0
	v_mov_b32_e32 v1, s3                                       // 000000002008: 7E020203
	s_add_i32 s3, s2, 57                                       // 00000000200C: 8103B902
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000002010: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000002018: BF8C0F70
	v_mov_b32_e32 v2, 0xe4                                     // 00000000201C: 7E0402FF 000000E4
	v_mov_b32_e32 v1, s3                                       // 000000002024: 7E020203
	s_add_i32 s3, s2, 58                                       // 000000002028: 8103BA02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 00000000202C: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000002034: BF8C0F70
	v_mov_b32_e32 v2, 0xe8                                     // 000000002038: 7E0402FF 000000E8
	v_mov_b32_e32 v1, s3                                       // 000000002040: 7E020203
	s_add_i32 s3, s2, 59                                       // 000000002044: 8103BB02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000002048: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000002050: BF8C0F70
	v_mov_b32_e32 v2, 0xec                                     // 000000002054: 7E0402FF 000000EC
	v_mov_b32_e32 v1, s3                                       // 00000000205C: 7E020203
	s_add_i32 s3, s2, 60                                       // 000000002060: 8103BC02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000002064: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 00000000206C: BF8C0F70
	v_mov_b32_e32 v2, 0xf0                                     // 000000002070: 7E0402FF 000000F0
	v_mov_b32_e32 v1, s3                                       // 000000002078: 7E020203
	s_add_i32 s3, s2, 61                                       // 00000000207C: 8103BD02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 000000002080: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 000000002088: BF8C0F70
	v_mov_b32_e32 v2, 0xf4                                     // 00000000208C: 7E0402FF 000000F4
	v_mov_b32_e32 v1, s3                                       // 000000002094: 7E020203
	s_add_i32 s3, s2, 62                                       // 000000002098: 8103BE02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 00000000209C: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 0000000020A4: BF8C0F70
	v_mov_b32_e32 v2, 0xf8                                     // 0000000020A8: 7E0402FF 000000F8
	v_mov_b32_e32 v1, s3                                       // 0000000020B0: 7E020203
	s_add_i32 s3, s2, 63                                       // 0000000020B4: 8103BF02
	flat_store_dword v[2:3], v1 sc0 sc1                        // 0000000020B8: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 0000000020C0: BF8C0F70
	v_mov_b32_e32 v1, s3                                       // 0000000020C4: 7E020203
	s_and_b32 s3, s2, 63                                       // 0000000020C8: 8603BF02
	v_bfrev_b32_e32 v2, 0.5                                    // 0000000020CC: 7E0458F0
	s_lshl_b32 s3, s3, 2                                       // 0000000020D0: 8E038203
	flat_store_dword v[2:3], v1 sc0 sc1                        // 0000000020D4: DE710000 00000102
	s_waitcnt vmcnt(0)                                         // 0000000020DC: BF8C0F70
	v_mov_b32_e32 v2, s3                                       // 0000000020E0: 7E040203
	flat_load_dword v1, v[2:3] sc0 sc1                         // 0000000020E4: DE510000 01000002
	s_waitcnt vmcnt(0)                                         // 0000000020EC: BF8C0F70
	s_and_b32 s2, s2, 0xff                                     // 0000000020F0: 8602FF02 000000FF
	s_lshl_b32 s2, s2, 2                                       // 0000000020F8: 8E028202
	s_load_dwordx2 s[0:1], s[0:1], 0x0                         // 0000000020FC: C0060000 00000000
	s_waitcnt lgkmcnt(0)                                       // 000000002104: BF8CC07F
	ds_write_b32 v0, v1                                        // 000000002108: D81A0000 00000100
	v_mov_b32_e32 v0, s2                                       // 000000002110: 7E000202
	s_barrier                                                  // 000000002114: BF8A0000
	ds_read_b32 v0, v0                                         // 000000002118: D86C0000 00000000
	v_mov_b32_e32 v1, 0                                        // 000000002120: 7E020280
	s_waitcnt lgkmcnt(0)                                       // 000000002124: BF8CC07F
	global_store_dword v1, v0, s[0:1]                          // 000000002128: DC708000 00000001
	s_endpgm                                                   // 000000002130: BF810000
	s_nop 0                                                    // 000000002134: BF800000
	s_nop 0                                                    // 000000002138: BF800000
	s_nop 0                                                    // 00000000213C: BF800000
	s_nop 0                                                    // 000000002140: BF800000
	s_nop 0                                                    // 000000002144: BF800000
	s_nop 0                                                    // 000000002148: BF800000
	s_nop 0                                                    // 00000000214C: BF800000
	s_nop 0                                                    // 000000002150: BF800000
	s_nop 0                                                    // 000000002154: BF800000
	s_nop 0                                                    // 000000002158: BF800000
	s_nop 0                                                    // 00000000215C: BF800000
	s_nop 0                                                    // 000000002160: BF800000
	s_nop 0                                                    // 000000002164: BF800000
	s_nop 0                                                    // 000000002168: BF800000
	s_nop 0                                                    // 00000000216C: BF800000
	s_nop 0                                                    // 000000002170: BF800000
	s_nop 0                                                    // 000000002174: BF800000
	s_nop 0                                                    // 000000002178: BF800000
	s_nop 0                                                    // 00000000217C: BF800000
	s_nop 0                                                    // 000000002180: BF800000
	s_nop 0                                                    // 000000002184: BF800000
	s_nop 0                                                    // 000000002188: BF800000
	s_nop 0                                                    // 00000000218C: BF800000
	s_nop 0                                                    // 000000002190: BF800000
	s_nop 0                                                    // 000000002194: BF800000
	s_nop 0                                                    // 000000002198: BF800000
	s_nop 0                                                    // 00000000219C: BF800000
	s_nop 0                                                    // 0000000021A0: BF800000
	s_nop 0                                                    // 0000000021A4: BF800000
	s_nop 0                                                    // 0000000021A8: BF800000
	s_nop 0                                                    // 0000000021AC: BF800000
	s_nop 0                                                    // 0000000021B0: BF800000
	s_nop 0                                                    // 0000000021B4: BF800000
	s_nop 0                                                    // 0000000021B8: BF800000
	s_nop 0                                                    // 0000000021BC: BF800000
	s_nop 0                                                    // 0000000021C0: BF800000
	s_nop 0                                                    // 0000000021C4: BF800000
	s_nop 0                                                    // 0000000021C8: BF800000
	s_nop 0                                                    // 0000000021CC: BF800000
	s_nop 0                                                    // 0000000021D0: BF800000
	s_nop 0                                                    // 0000000021D4: BF800000
	s_nop 0                                                    // 0000000021D8: BF800000
	s_nop 0                                                    // 0000000021DC: BF800000
	s_nop 0                                                    // 0000000021E0: BF800000
	s_nop 0                                                    // 0000000021E4: BF800000
	s_nop 0                                                    // 0000000021E8: BF800000
	s_nop 0                                                    // 0000000021EC: BF800000
	s_nop 0                                                    // 0000000021F0: BF800000
	s_nop 0                                                    // 0000000021F4: BF800000
	s_nop 0                                                    // 0000000021F8: BF800000
	s_nop 0                                                    // 0000000021FC: BF800000
	s_nop 0                                                    // 000000002200: BF800000
	s_nop 0                                                    // 000000002204: BF800000
	s_nop 0                                                    // 000000002208: BF800000
	s_nop 0                                                    // 00000000220C: BF800000
	s_nop 0                                                    // 000000002210: BF800000
	s_nop 0                                                    // 000000002214: BF800000
	s_nop 0                                                    // 000000002218: BF800000
	s_nop 0                                                    // 00000000221C: BF800000
	s_nop 0                                                    // 000000002220: BF800000
	s_nop 0                                                    // 000000002224: BF800000
	s_nop 0                                                    // 000000002228: BF800000
	s_nop 0                                                    // 00000000222C: BF800000
	s_nop 0                                                    // 000000002230: BF800000
	s_nop 0                                                    // 000000002234: BF800000
	s_nop 0                                                    // 000000002238: BF800000
	s_nop 0                                                    // 00000000223C: BF800000
	s_nop 0                                                    // 000000002240: BF800000
	s_nop 0                                                    // 000000002244: BF800000
	s_nop 0                                                    // 000000002248: BF800000
	s_nop 0                                                    // 00000000224C: BF800000
	s_nop 0                                                    // 000000002250: BF800000
	s_nop 0                                                    // 000000002254: BF800000
	s_nop 0                                                    // 000000002258: BF800000
	s_nop 0                                                    // 00000000225C: BF800000
	s_nop 0                                                    // 000000002260: BF800000
	s_nop 0                                                    // 000000002264: BF800000
	s_nop 0                                                    // 000000002268: BF800000
	s_nop 0                                                    // 00000000226C: BF800000
	s_nop 0                                                    // 000000002270: BF800000
	s_nop 0                                                    // 000000002274: BF800000
	s_nop 0                                                    // 000000002278: BF800000
	s_nop 0                                                    // 00000000227C: BF800000
	s_nop 0                                                    // 000000002280: BF800000
	s_nop 0                                                    // 000000002284: BF800000
	s_nop 0                                                    // 000000002288: BF800000
	s_nop 0                                                    // 00000000228C: BF800000
	s_nop 0                                                    // 000000002290: BF800000
	s_nop 0                                                    // 000000002294: BF800000
	s_nop 0                                                    // 000000002298: BF800000
	s_nop 0                                                    // 00000000229C: BF800000
	s_nop 0                                                    // 0000000022A0: BF800000
	s_nop 0                                                    // 0000000022A4: BF800000
	s_nop 0                                                    // 0000000022A8: BF800000
	s_nop 0                                                    // 0000000022AC: BF800000
	s_nop 0                                                    // 0000000022B0: BF800000
	s_nop 0                                                    // 0000000022B4: BF800000
	s_nop 0                                                    // 0000000022B8: BF800000
	s_nop 0                                                    // 0000000022BC: BF800000
	s_nop 0                                                    // 0000000022C0: BF800000
	s_nop 0                                                    // 0000000022C4: BF800000
	s_nop 0                                                    // 0000000022C8: BF800000
	s_nop 0                                                    // 0000000022CC: BF800000
	s_nop 0                                                    // 0000000022D0: BF800000
	s_nop 0                                                    // 0000000022D4: BF800000
	s_nop 0                                                    // 0000000022D8: BF800000
	s_nop 0                                                    // 0000000022DC: BF800000
	s_nop 0                                                    // 0000000022E0: BF800000
	s_nop 0                                                    // 0000000022E4: BF800000
	s_nop 0                                                    // 0000000022E8: BF800000
	s_nop 0                                                    // 0000000022EC: BF800000
	s_nop 0                                                    // 0000000022F0: BF800000
	s_nop 0                                                    // 0000000022F4: BF800000
	s_nop 0                                                    // 0000000022F8: BF800000
	s_nop 0                                                    // 0000000022FC: BF800000
	s_nop 0                                                    // 000000002300: BF800000
	s_nop 0                                                    // 000000002304: BF800000
	s_nop 0                                                    // 000000002308: BF800000
	s_nop 0                                                    // 00000000230C: BF800000
	s_nop 0                                                    // 000000002310: BF800000
	s_nop 0                                                    // 000000002314: BF800000
	s_nop 0                                                    // 000000002318: BF800000
	s_nop 0                                                    // 00000000231C: BF800000
	s_nop 0                                                    // 000000002320: BF800000
	s_nop 0                                                    // 000000002324: BF800000
	s_nop 0                                                    // 000000002328: BF800000
	s_nop 0                                                    // 00000000232C: BF800000
	s_nop 0                                                    // 000000002330: BF800000
	s_nop 0                                                    // 000000002334: BF800000
	s_nop 0                                                    // 000000002338: BF800000
	s_nop 0                                                    // 00000000233C: BF800000
	s_nop 0                                                    // 000000002340: BF800000
	s_nop 0                                                    // 000000002344: BF800000
	s_nop 0                                                    // 000000002348: BF800000
	s_nop 0                                                    // 00000000234C: BF800000
	s_nop 0                                                    // 000000002350: BF800000
	s_nop 0                                                    // 000000002354: BF800000
	s_nop 0                                                    // 000000002358: BF800000
	s_nop 0                                                    // 00000000235C: BF800000
	s_nop 0                                                    // 000000002360: BF800000
	s_nop 0                                                    // 000000002364: BF800000
	s_nop 0                                                    // 000000002368: BF800000
	s_nop 0                                                    // 00000000236C: BF800000
	s_nop 0                                                    // 000000002370: BF800000
	s_nop 0                                                    // 000000002374: BF800000
	s_nop 0                                                    // 000000002378: BF800000
	s_nop 0                                                    // 00000000237C: BF800000
	s_nop 0                                                    // 000000002380: BF800000
	s_nop 0                                                    // 000000002384: BF800000
	s_nop 0                                                    // 000000002388: BF800000
	s_nop 0                                                    // 00000000238C: BF800000
	s_nop 0                                                    // 000000002390: BF800000
	s_nop 0                                                    // 000000002394: BF800000
	s_nop 0                                                    // 000000002398: BF800000
	s_nop 0                                                    // 00000000239C: BF800000
	s_nop 0                                                    // 0000000023A0: BF800000
	s_nop 0                                                    // 0000000023A4: BF800000
	s_nop 0                                                    // 0000000023A8: BF800000
	s_nop 0                                                    // 0000000023AC: BF800000
	s_nop 0                                                    // 0000000023B0: BF800000
	s_nop 0                                                    // 0000000023B4: BF800000
	s_nop 0                                                    // 0000000023B8: BF800000
	s_nop 0                                                    // 0000000023BC: BF800000
	s_nop 0                                                    // 0000000023C0: BF800000
	s_nop 0                                                    // 0000000023C4: BF800000
	s_nop 0                                                    // 0000000023C8: BF800000
	s_nop 0                                                    // 0000000023CC: BF800000
	s_nop 0                                                    // 0000000023D0: BF800000
	s_nop 0                                                    // 0000000023D4: BF800000
	s_nop 0                                                    // 0000000023D8: BF800000
	s_nop 0                                                    // 0000000023DC: BF800000
	s_nop 0                                                    // 0000000023E0: BF800000
	s_nop 0                                                    // 0000000023E4: BF800000
	s_nop 0                                                    // 0000000023E8: BF800000
	s_nop 0                                                    // 0000000023EC: BF800000
	s_nop 0                                                    // 0000000023F0: BF800000
	s_nop 0                                                    // 0000000023F4: BF800000
	s_nop 0                                                    // 0000000023F8: BF800000
	s_nop 0                                                    // 0000000023FC: BF800000
	s_nop 0                                                    // 000000002400: BF800000
	s_nop 0                                                    // 000000002404: BF800000
	s_nop 0                                                    // 000000002408: BF800000
	s_nop 0                                                    // 00000000240C: BF800000
	s_nop 0                                                    // 000000002410: BF800000
	s_nop 0                                                    // 000000002414: BF800000
	s_nop 0                                                    // 000000002418: BF800000
	s_nop 0                                                    // 00000000241C: BF800000
	s_nop 0                                                    // 000000002420: BF800000
	s_nop 0                                                    // 000000002424: BF800000
	s_nop 0                                                    // 000000002428: BF800000
	s_nop 0                                                    // 00000000242C: BF800000
	s_nop 0                                                    // 000000002430: BF800000
	s_nop 0                                                    // 000000002434: BF800000
	s_nop 0                                                    // 000000002438: BF800000
	s_nop 0                                                    // 00000000243C: BF800000
	s_nop 0                                                    // 000000002440: BF800000
	s_nop 0                                                    // 000000002444: BF800000
	s_nop 0                                                    // 000000002448: BF800000
	s_nop 0                                                    // 00000000244C: BF800000
	s_nop 0                                                    // 000000002450: BF800000
	s_nop 0                                                    // 000000002454: BF800000
	s_nop 0                                                    // 000000002458: BF800000
	s_nop 0                                                    // 00000000245C: BF800000
	s_nop 0                                                    // 000000002460: BF800000
	s_nop 0                                                    // 000000002464: BF800000
	s_nop 0                                                    // 000000002468: BF800000
	s_nop 0                                                    // 00000000246C: BF800000
	s_nop 0                                                    // 000000002470: BF800000
	s_nop 0                                                    // 000000002474: BF800000
	s_nop 0                                                    // 000000002478: BF800000
	s_nop 0                                                    // 00000000247C: BF800000
	s_nop 0                                                    // 000000002480: BF800000
	s_nop 0                                                    // 000000002484: BF800000
	s_nop 0                                                    // 000000002488: BF800000
	s_nop 0                                                    // 00000000248C: BF800000
	s_nop 0                                                    // 000000002490: BF800000
	s_nop 0                                                    // 000000002494: BF800000
	s_nop 0                                                    // 000000002498: BF800000
	s_nop 0                                                    // 00000000249C: BF800000
	s_nop 0                                                    // 0000000024A0: BF800000
	s_nop 0                                                    // 0000000024A4: BF800000
	s_nop 0                                                    // 0000000024A8: BF800000
	s_nop 0                                                    // 0000000024AC: BF800000
	s_nop 0                                                    // 0000000024B0: BF800000
	s_nop 0                                                    // 0000000024B4: BF800000
	s_nop 0                                                    // 0000000024B8: BF800000
	s_nop 0                                                    // 0000000024BC: BF800000
	s_nop 0                                                    // 0000000024C0: BF800000
	s_nop 0                                                    // 0000000024C4: BF800000
	s_nop 0                                                    // 0000000024C8: BF800000
	s_nop 0                                                    // 0000000024CC: BF800000
	s_nop 0                                                    // 0000000024D0: BF800000
	s_nop 0                                                    // 0000000024D4: BF800000
	s_nop 0                                                    // 0000000024D8: BF800000
	s_nop 0                                                    // 0000000024DC: BF800000
	s_nop 0                                                    // 0000000024E0: BF800000
	s_nop 0                                                    // 0000000024E4: BF800000
	s_nop 0                                                    // 0000000024E8: BF800000
	s_nop 0                                                    // 0000000024EC: BF800000
	s_nop 0                                                    // 0000000024F0: BF800000
	s_nop 0                                                    // 0000000024F4: BF800000
	s_nop 0                                                    // 0000000024F8: BF800000
	s_nop 0                                                    // 0000000024FC: BF800000
	s_nop 0                                                    // 000000002500: BF800000
	s_nop 0                                                    // 000000002504: BF800000
	s_nop 0                                                    // 000000002508: BF800000
	s_nop 0                                                    // 00000000250C: BF800000
	s_nop 0                                                    // 000000002510: BF800000
	s_nop 0                                                    // 000000002514: BF800000
	s_nop 0                                                    // 000000002518: BF800000
	s_nop 0                                                    // 00000000251C: BF800000
	s_nop 0                                                    // 000000002520: BF800000
	s_nop 0                                                    // 000000002524: BF800000
	s_nop 0                                                    // 000000002528: BF800000
	s_nop 0                                                    // 00000000252C: BF800000
	s_nop 0                                                    // 000000002530: BF800000
	s_nop 0                                                    // 000000002534: BF800000
	s_nop 0                                                    // 000000002538: BF800000
	s_nop 0                                                    // 00000000253C: BF800000
